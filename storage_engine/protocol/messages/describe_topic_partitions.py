"""DescribeTopicPartitions, versions 0-0; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.fields import (
    boolean,
    int16,
    int32,
    int32s,
    nullable_int32s,
    nullable_string,
    nullable_struct,
    string,
    structs,
    uuid,
)
from storage_engine.protocol.apis.struct_codec import api


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsRequest:
    @dataclass(slots=True, kw_only=True)
    class TopicRequest:
        name: str = string()

    @dataclass(slots=True, kw_only=True)
    class Cursor:
        topic_name: str = string()
        partition_index: int = int32()

    topics: Sequence[TopicRequest] = structs(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nullable_struct(Cursor)


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsResponse:
    @dataclass(slots=True, kw_only=True)
    class DescribeTopicPartitionsResponseTopic:
        @dataclass(slots=True, kw_only=True)
        class DescribeTopicPartitionsResponsePartition:
            error_code: int = int16()
            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32(default=-1)
            replica_nodes: Sequence[int] = int32s()
            isr_nodes: Sequence[int] = int32s()
            eligible_leader_replicas: Sequence[int] | None = nullable_int32s(is_null=True)
            last_known_elr: Sequence[int] | None = nullable_int32s(is_null=True)
            offline_replicas: Sequence[int] = int32s()

        error_code: int = int16()
        name: str | None = nullable_string()
        topic_id: UUID = uuid()
        is_internal: bool = boolean()
        partitions: Sequence[DescribeTopicPartitionsResponsePartition] = structs(
            DescribeTopicPartitionsResponsePartition
        )
        topic_authorized_operations: int = int32(default=-2147483648)

    @dataclass(slots=True, kw_only=True)
    class Cursor:
        topic_name: str = string()
        partition_index: int = int32()

    throttle_time_ms: int = int32()
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = structs(
        DescribeTopicPartitionsResponseTopic
    )
    next_cursor: Cursor | None = nullable_struct(Cursor)


API = api(75, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse)
