"""ListGroups, versions 0-5; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, int32, string, strings, structs
from storage_engine.protocol.apis.struct_codec import api


# Version 1 and 2 are the same as version 0.
# Version 3 is the first flexible version.
# Version 4 adds the StatesFilter field (KIP-518).
# Version 5 adds the TypesFilter field (KIP-848).
@dataclass(slots=True, kw_only=True)
class ListGroupsRequest:
    states_filter: Sequence[str] = strings(4)
    types_filter: Sequence[str] = strings(5)


# Version 1 adds the throttle time.
# Starting in version 2, on quota violation, brokers send out
# responses before throttling.
# Version 3 is the first flexible version.
# Version 4 adds the GroupState field (KIP-518).
# Version 5 adds the GroupType field (KIP-848).
@dataclass(slots=True, kw_only=True)
class ListGroupsResponse:
    @dataclass(slots=True, kw_only=True)
    class ListedGroup:
        group_id: str = string()
        protocol_type: str = string()
        group_state: str = string(4)
        group_type: str = string(5)

    throttle_time_ms: int = int32(1)
    error_code: int = int16()
    groups: Sequence[ListedGroup] = structs(ListedGroup)


API = api(16, ListGroupsRequest, ListGroupsResponse)
