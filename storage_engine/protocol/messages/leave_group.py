"""LeaveGroup, versions 0-5; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, int32, nullable_string, string, structs
from storage_engine.protocol.apis.struct_codec import api


# Version 1 and 2 are the same as version 0.
# Version 3 defines batch processing scheme with group.instance.id + member.id for identity
# Version 4 is the first flexible version.
# Version 5 adds the Reason field (KIP-800).
@dataclass(slots=True, kw_only=True)
class LeaveGroupRequest:
    @dataclass(slots=True, kw_only=True)
    class MemberIdentity:
        member_id: str = string(3)
        group_instance_id: str | None = nullable_string(3, default=None)
        reason: str | None = nullable_string(5, default=None)

    group_id: str = string()
    member_id: str = string(0, 2)
    members: Sequence[MemberIdentity] = structs(MemberIdentity, 3)


# Version 1 adds the throttle time.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Starting in version 3, we will make leave group request into batch mode and add group.instance.id.
# Version 4 is the first flexible version.
# Version 5 is the same as version 4.
@dataclass(slots=True, kw_only=True)
class LeaveGroupResponse:
    @dataclass(slots=True, kw_only=True)
    class MemberResponse:
        member_id: str = string(3)
        group_instance_id: str | None = nullable_string(3)
        error_code: int = int16(3)

    throttle_time_ms: int = int32(1)
    error_code: int = int16()
    members: Sequence[MemberResponse] = structs(MemberResponse, 3)


API = api(13, LeaveGroupRequest, LeaveGroupResponse)
