"""DeleteGroups, versions 0-2; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, int32, string, strings, structs
from storage_engine.protocol.apis.struct_codec import api


# Version 1 is the same as version 0.
# Version 2 is the first flexible version.
@dataclass(slots=True, kw_only=True)
class DeleteGroupsRequest:
    groups_names: Sequence[str] = strings()


# Starting in version 1, on quota violation, brokers send out responses before throttling.
# Version 2 is the first flexible version.
@dataclass(slots=True, kw_only=True)
class DeleteGroupsResponse:
    @dataclass(slots=True, kw_only=True)
    class DeletableGroupResult:
        group_id: str = string()
        error_code: int = int16()

    throttle_time_ms: int = int32()
    results: Sequence[DeletableGroupResult] = structs(DeletableGroupResult)


API = api(42, DeleteGroupsRequest, DeleteGroupsResponse)
