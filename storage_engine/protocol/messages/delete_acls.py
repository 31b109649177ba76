"""DeleteAcls, versions 1-3; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int8, int16, int32, nullable_string, string, structs
from storage_engine.protocol.apis.struct_codec import api


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Version 1 adds the pattern type.
# Version 2 enables flexible versions.
# Version 3 adds the user resource type.
@dataclass(slots=True, kw_only=True)
class DeleteAclsRequest:
    @dataclass(slots=True, kw_only=True)
    class DeleteAclsFilter:
        resource_type_filter: int = int8()
        resource_name_filter: str | None = nullable_string()
        pattern_type_filter: int = int8(default=3)
        principal_filter: str | None = nullable_string()
        host_filter: str | None = nullable_string()
        operation: int = int8()
        permission_type: int = int8()

    filters: Sequence[DeleteAclsFilter] = structs(DeleteAclsFilter)


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Version 1 adds the resource pattern type.
# Starting in version 1, on quota violation, brokers send out responses before throttling.
# Version 2 enables flexible versions.
# Version 3 adds the user resource type.
@dataclass(slots=True, kw_only=True)
class DeleteAclsResponse:
    @dataclass(slots=True, kw_only=True)
    class DeleteAclsFilterResult:
        @dataclass(slots=True, kw_only=True)
        class DeleteAclsMatchingAcl:
            error_code: int = int16()
            error_message: str | None = nullable_string()
            resource_type: int = int8()
            resource_name: str = string()
            pattern_type: int = int8(default=3)
            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()

        error_code: int = int16()
        error_message: str | None = nullable_string()
        matching_acls: Sequence[DeleteAclsMatchingAcl] = structs(DeleteAclsMatchingAcl)

    throttle_time_ms: int = int32()
    filter_results: Sequence[DeleteAclsFilterResult] = structs(DeleteAclsFilterResult)


API = api(31, DeleteAclsRequest, DeleteAclsResponse)
