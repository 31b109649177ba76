"""CreateAcls, versions 1-3; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int8, int16, int32, nullable_string, string, structs
from storage_engine.protocol.apis.struct_codec import api


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Version 1 adds resource pattern type.
# Version 2 enables flexible versions.
# Version 3 adds user resource type.
@dataclass(slots=True, kw_only=True)
class CreateAclsRequest:
    @dataclass(slots=True, kw_only=True)
    class AclCreation:
        resource_type: int = int8()
        resource_name: str = string()
        resource_pattern_type: int = int8(default=3)
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    creations: Sequence[AclCreation] = structs(AclCreation)


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Starting in version 1, on quota violation, brokers send out responses before throttling.
# Version 2 enables flexible versions.
# Version 3 adds user resource type.
@dataclass(slots=True, kw_only=True)
class CreateAclsResponse:
    @dataclass(slots=True, kw_only=True)
    class AclCreationResult:
        error_code: int = int16()
        error_message: str | None = nullable_string()

    throttle_time_ms: int = int32()
    results: Sequence[AclCreationResult] = structs(AclCreationResult)


API = api(30, CreateAclsRequest, CreateAclsResponse)
