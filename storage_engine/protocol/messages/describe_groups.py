"""DescribeGroups, versions 0-5; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    binary,
    boolean,
    int16,
    int32,
    nullable_string,
    string,
    strings,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Versions 1 and 2 are the same as version 0.
# Starting in version 3, authorized operations can be requested.
# Starting in version 4, the response will include group.instance.id info for members.
# Version 5 is the first flexible version.
# Version 6 returns error code GROUP_ID_NOT_FOUND if the group ID is not found (KIP-1043).
@dataclass(slots=True, kw_only=True)
class DescribeGroupsRequest:
    groups: Sequence[str] = strings()
    include_authorized_operations: bool = boolean(3)


# Version 1 added throttle time.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Starting in version 3, brokers can send authorized operations.
# Starting in version 4, the response will optionally include group.instance.id info for members.
# Version 5 is the first flexible version.
# Version 6 returns error code GROUP_ID_NOT_FOUND if the group ID is not found (KIP-1043).
@dataclass(slots=True, kw_only=True)
class DescribeGroupsResponse:
    @dataclass(slots=True, kw_only=True)
    class DescribedGroup:
        @dataclass(slots=True, kw_only=True)
        class DescribedGroupMember:
            member_id: str = string()
            group_instance_id: str | None = nullable_string(4, default=None)
            client_id: str = string()
            client_host: str = string()
            member_metadata: bytes = binary()
            member_assignment: bytes = binary()

        error_code: int = int16()
        group_id: str = string()
        group_state: str = string()
        protocol_type: str = string()
        protocol_data: str = string()
        members: Sequence[DescribedGroupMember] = structs(DescribedGroupMember)
        authorized_operations: int = int32(3, default=-2147483648)

    throttle_time_ms: int = int32(1)
    groups: Sequence[DescribedGroup] = structs(DescribedGroup)


API = api(15, DescribeGroupsRequest, DescribeGroupsResponse)
