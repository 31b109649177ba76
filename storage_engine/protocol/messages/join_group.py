"""JoinGroup, versions 0-9; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    binary,
    boolean,
    int16,
    int32,
    nullable_string,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 1 adds RebalanceTimeoutMs. Version 2 and 3 are the same as version 1.
# Starting from version 4, the client needs to issue a second request to join group
# Starting from version 5, we add a new field called groupInstanceId to indicate member identity
# across restarts.
# with assigned id.
# Version 6 is the first flexible version.
# Version 7 is the same as version 6.
# Version 8 adds the Reason field (KIP-800).
# Version 9 is the same as version 8.
@dataclass(slots=True, kw_only=True)
class JoinGroupRequest:
    @dataclass(slots=True, kw_only=True)
    class JoinGroupRequestProtocol:
        name: str = string()
        metadata: bytes = binary()

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(1, default=-1)
    member_id: str = string()
    group_instance_id: str | None = nullable_string(5, default=None)
    protocol_type: str = string()
    protocols: Sequence[JoinGroupRequestProtocol] = structs(JoinGroupRequestProtocol)
    reason: str | None = nullable_string(8, default=None)


# Version 1 is the same as version 0.
# Version 2 adds throttle time.
# Starting in version 3, on quota violation, brokers send out responses before throttling.
# Starting in version 4, the client needs to issue a second request to join group
# with assigned id.
# Version 5 is bumped to apply group.instance.id to identify member across restarts.
# Version 6 is the first flexible version.
# Starting from version 7, the broker sends back the Protocol Type to the client (KIP-559).
# Version 8 is the same as version 7.
# Version 9 adds the SkipAssignment field.
@dataclass(slots=True, kw_only=True)
class JoinGroupResponse:
    @dataclass(slots=True, kw_only=True)
    class JoinGroupResponseMember:
        member_id: str = string()
        group_instance_id: str | None = nullable_string(5, default=None)
        metadata: bytes = binary()

    throttle_time_ms: int = int32(2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = nullable_string(7, default=None)
    protocol_name: str | None = nullable_string(null_from=7)
    leader: str = string()
    skip_assignment: bool = boolean(9)
    member_id: str = string()
    members: Sequence[JoinGroupResponseMember] = structs(JoinGroupResponseMember)


API = api(11, JoinGroupRequest, JoinGroupResponse)
