"""ListPartitionReassignments, versions 0-0; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    int16,
    int32,
    int32s,
    nullable_string,
    nullable_structs,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


@dataclass(slots=True, kw_only=True)
class ListPartitionReassignmentsRequest:
    @dataclass(slots=True, kw_only=True)
    class ListPartitionReassignmentsTopics:
        name: str = string()
        partition_indexes: Sequence[int] = int32s()

    timeout_ms: int = int32(default=60000)
    topics: Sequence[ListPartitionReassignmentsTopics] | None = nullable_structs(
        ListPartitionReassignmentsTopics, is_null=True
    )


@dataclass(slots=True, kw_only=True)
class ListPartitionReassignmentsResponse:
    @dataclass(slots=True, kw_only=True)
    class OngoingTopicReassignment:
        @dataclass(slots=True, kw_only=True)
        class OngoingPartitionReassignment:
            partition_index: int = int32()
            replicas: Sequence[int] = int32s()
            adding_replicas: Sequence[int] = int32s()
            removing_replicas: Sequence[int] = int32s()

        name: str = string()
        partitions: Sequence[OngoingPartitionReassignment] = structs(OngoingPartitionReassignment)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    topics: Sequence[OngoingTopicReassignment] = structs(OngoingTopicReassignment)


API = api(46, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse)
