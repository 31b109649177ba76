"""SaslHandshake, versions 0-1; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, string, strings
from storage_engine.protocol.apis.struct_codec import api


# Version 1 supports SASL_AUTHENTICATE.
# NOTE: Version cannot be easily bumped due to incorrect
# client negotiation for clients <= 2.4.
# See https://issues.apache.org/jira/browse/KAFKA-9577
@dataclass(slots=True, kw_only=True)
class SaslHandshakeRequest:
    mechanism: str = string()


# Version 1 is the same as version 0.
# NOTE: Version cannot be easily bumped due to incorrect
# client negotiation for clients <= 2.4.
# See https://issues.apache.org/jira/browse/KAFKA-9577
@dataclass(slots=True, kw_only=True)
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: Sequence[str] = strings()


API = api(17, SaslHandshakeRequest, SaslHandshakeResponse)
