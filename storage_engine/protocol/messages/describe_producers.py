"""DescribeProducers, versions 0-0; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    int16,
    int32,
    int32s,
    int64,
    nullable_string,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


@dataclass(slots=True, kw_only=True)
class DescribeProducersRequest:
    @dataclass(slots=True, kw_only=True)
    class TopicRequest:
        name: str = string()
        partition_indexes: Sequence[int] = int32s()

    topics: Sequence[TopicRequest] = structs(TopicRequest)


@dataclass(slots=True, kw_only=True)
class DescribeProducersResponse:
    @dataclass(slots=True, kw_only=True)
    class TopicResponse:
        @dataclass(slots=True, kw_only=True)
        class PartitionResponse:
            @dataclass(slots=True, kw_only=True)
            class ProducerState:
                producer_id: int = int64()
                producer_epoch: int = int32()
                last_sequence: int = int32(default=-1)
                last_timestamp: int = int64(default=-1)
                coordinator_epoch: int = int32()
                current_txn_start_offset: int = int64(default=-1)

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = nullable_string(default=None)
            active_producers: Sequence[ProducerState] = structs(ProducerState)

        name: str = string()
        partitions: Sequence[PartitionResponse] = structs(PartitionResponse)

    throttle_time_ms: int = int32()
    topics: Sequence[TopicResponse] = structs(TopicResponse)


API = api(61, DescribeProducersRequest, DescribeProducersResponse)
