"""AlterPartitionReassignments, versions 0-1; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    boolean,
    int16,
    int32,
    nullable_int32s,
    nullable_string,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 1 adds the ability to allow/disallow changing the replication factor as part of the
# request.
@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest:
    @dataclass(slots=True, kw_only=True)
    class ReassignableTopic:
        @dataclass(slots=True, kw_only=True)
        class ReassignablePartition:
            partition_index: int = int32()
            replicas: Sequence[int] | None = nullable_int32s(is_null=True)

        name: str = string()
        partitions: Sequence[ReassignablePartition] = structs(ReassignablePartition)

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(1, default=True)
    topics: Sequence[ReassignableTopic] = structs(ReassignableTopic)


# Version 1 adds the ability to allow/disallow changing the replication factor as part of the
# request.
@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse:
    @dataclass(slots=True, kw_only=True)
    class ReassignableTopicResponse:
        @dataclass(slots=True, kw_only=True)
        class ReassignablePartitionResponse:
            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = nullable_string()

        name: str = string()
        partitions: Sequence[ReassignablePartitionResponse] = structs(ReassignablePartitionResponse)

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(1, default=True)
    error_code: int = int16()
    error_message: str | None = nullable_string()
    responses: Sequence[ReassignableTopicResponse] = structs(ReassignableTopicResponse)


API = api(45, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse)
