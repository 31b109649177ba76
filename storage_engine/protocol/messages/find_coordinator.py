"""FindCoordinator, versions 0-4; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    int8,
    int16,
    int32,
    nullable_string,
    string,
    strings,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 1 adds KeyType.
# Version 2 is the same as version 1.
# Version 3 is the first flexible version.
# Version 4 adds support for batching via CoordinatorKeys (KIP-699)
# Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 6 adds support for share groups (KIP-932).
# For key type SHARE (2), the coordinator key format is "groupId:topicId:partition".
@dataclass(slots=True, kw_only=True)
class FindCoordinatorRequest:
    key: str = string(0, 3)
    key_type: int = int8(1)
    coordinator_keys: Sequence[str] = strings(4)


# Version 1 adds throttle time and error messages.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Version 3 is the first flexible version.
# Version 4 adds support for batching via Coordinators (KIP-699)
# Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 6 adds support for share groups (KIP-932).
@dataclass(slots=True, kw_only=True)
class FindCoordinatorResponse:
    @dataclass(slots=True, kw_only=True)
    class Coordinator:
        key: str = string(4)
        node_id: int = int32(4)
        host: str = string(4)
        port: int = int32(4)
        error_code: int = int16(4)
        error_message: str | None = nullable_string(4)

    throttle_time_ms: int = int32(1)
    error_code: int = int16(0, 3)
    error_message: str | None = nullable_string(1, 3)
    node_id: int = int32(0, 3)
    host: str = string(0, 3)
    port: int = int32(0, 3)
    coordinators: Sequence[Coordinator] = structs(Coordinator, 4)


API = api(10, FindCoordinatorRequest, FindCoordinatorResponse)
