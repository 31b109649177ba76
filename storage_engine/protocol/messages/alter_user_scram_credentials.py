"""AlterUserScramCredentials, versions 0-0; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    binary,
    int8,
    int16,
    int32,
    nullable_string,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsRequest:
    @dataclass(slots=True, kw_only=True)
    class ScramCredentialDeletion:
        name: str = string()
        mechanism: int = int8()

    @dataclass(slots=True, kw_only=True)
    class ScramCredentialUpsertion:
        name: str = string()
        mechanism: int = int8()
        iterations: int = int32()
        salt: bytes = binary()
        salted_password: bytes = binary()

    deletions: Sequence[ScramCredentialDeletion] = structs(ScramCredentialDeletion)
    upsertions: Sequence[ScramCredentialUpsertion] = structs(ScramCredentialUpsertion)


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsResponse:
    @dataclass(slots=True, kw_only=True)
    class AlterUserScramCredentialsResult:
        user: str = string()
        error_code: int = int16()
        error_message: str | None = nullable_string()

    throttle_time_ms: int = int32()
    results: Sequence[AlterUserScramCredentialsResult] = structs(AlterUserScramCredentialsResult)


API = api(51, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, is_lenient=True)
