"""Heartbeat, versions 0-4; written by `.ci/messages.py`."""

from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, int32, nullable_string, string
from storage_engine.protocol.apis.struct_codec import api


# Version 1 and version 2 are the same as version 0.
# Starting from version 3, we add a new field called groupInstanceId to indicate member identity
# across restarts.
# Version 4 is the first flexible version.
@dataclass(slots=True, kw_only=True)
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string(3, default=None)


# Version 1 adds throttle time.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Starting from version 3, heartbeatRequest supports a new field called groupInstanceId to indicate
# member identity across restarts.
# Version 4 is the first flexible version.
@dataclass(slots=True, kw_only=True)
class HeartbeatResponse:
    throttle_time_ms: int = int32(1)
    error_code: int = int16()


API = api(12, HeartbeatRequest, HeartbeatResponse)
