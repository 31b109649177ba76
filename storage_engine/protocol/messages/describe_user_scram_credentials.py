"""DescribeUserScramCredentials, versions 0-0; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    int8,
    int16,
    int32,
    nullable_string,
    nullable_structs,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsRequest:
    @dataclass(slots=True, kw_only=True)
    class UserName:
        name: str = string()

    users: Sequence[UserName] | None = nullable_structs(UserName)


@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsResponse:
    @dataclass(slots=True, kw_only=True)
    class DescribeUserScramCredentialsResult:
        @dataclass(slots=True, kw_only=True)
        class CredentialInfo:
            mechanism: int = int8()
            iterations: int = int32()

        user: str = string()
        error_code: int = int16()
        error_message: str | None = nullable_string()
        credential_infos: Sequence[CredentialInfo] = structs(CredentialInfo)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    results: Sequence[DescribeUserScramCredentialsResult] = structs(
        DescribeUserScramCredentialsResult
    )


API = api(50, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse)
