"""SaslAuthenticate, versions 0-2; written by `.ci/messages.py`."""

from dataclasses import dataclass

from storage_engine.protocol.apis.fields import binary, int16, int64, nullable_string
from storage_engine.protocol.apis.struct_codec import api


# Version 1 is the same as version 0.
# Version 2 adds flexible version support
@dataclass(slots=True, kw_only=True)
class SaslAuthenticateRequest:
    auth_bytes: bytes = binary()


# Version 1 adds the session lifetime.
# Version 2 adds flexible version support
@dataclass(slots=True, kw_only=True)
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64(1)


API = api(36, SaslAuthenticateRequest, SaslAuthenticateResponse)
