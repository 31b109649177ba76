"""SyncGroup, versions 0-5; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    binary,
    int16,
    int32,
    nullable_string,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Versions 1 and 2 are the same as version 0.
# Starting from version 3, we add a new field called groupInstanceId to indicate member identity
# across restarts.
# Version 4 is the first flexible version.
# Starting from version 5, the client sends the Protocol Type and the Protocol Name
# to the broker (KIP-559). The broker will reject the request if they are inconsistent
# with the Type and Name known by the broker.
@dataclass(slots=True, kw_only=True)
class SyncGroupRequest:
    @dataclass(slots=True, kw_only=True)
    class SyncGroupRequestAssignment:
        member_id: str = string()
        assignment: bytes = binary()

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string(3, default=None)
    protocol_type: str | None = nullable_string(5, default=None)
    protocol_name: str | None = nullable_string(5, default=None)
    assignments: Sequence[SyncGroupRequestAssignment] = structs(SyncGroupRequestAssignment)


# Version 1 adds throttle time.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Starting from version 3, syncGroupRequest supports a new field called groupInstanceId to indicate
# member identity across restarts.
# Version 4 is the first flexible version.
# Starting from version 5, the broker sends back the Protocol Type and the Protocol Name
# to the client (KIP-559).
@dataclass(slots=True, kw_only=True)
class SyncGroupResponse:
    throttle_time_ms: int = int32(1)
    error_code: int = int16()
    protocol_type: str | None = nullable_string(5, default=None)
    protocol_name: str | None = nullable_string(5, default=None)
    assignment: bytes = binary()


API = api(14, SyncGroupRequest, SyncGroupResponse)
