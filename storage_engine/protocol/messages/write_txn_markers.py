"""WriteTxnMarkers, versions 1-2; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    boolean,
    int8,
    int16,
    int32,
    int32s,
    int64,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Version 1 enables flexible versions.
# Version 2 adds TransactionVersion field to the WritableTxnMarker (KIP-1228).
@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersRequest:
    @dataclass(slots=True, kw_only=True)
    class WritableTxnMarker:
        @dataclass(slots=True, kw_only=True)
        class WritableTxnMarkerTopic:
            name: str = string()
            partition_indexes: Sequence[int] = int32s()

        producer_id: int = int64()
        producer_epoch: int = int16()
        transaction_result: bool = boolean()
        topics: Sequence[WritableTxnMarkerTopic] = structs(WritableTxnMarkerTopic)
        coordinator_epoch: int = int32()
        transaction_version: int = int8(2)

    markers: Sequence[WritableTxnMarker] = structs(WritableTxnMarker)


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Version 1 enables flexible versions.
# Version 2 matches WriteTxnMarkersRequest version 2 (KIP-1228).
@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersResponse:
    @dataclass(slots=True, kw_only=True)
    class WritableTxnMarkerResult:
        @dataclass(slots=True, kw_only=True)
        class WritableTxnMarkerTopicResult:
            @dataclass(slots=True, kw_only=True)
            class WritableTxnMarkerPartitionResult:
                partition_index: int = int32()
                error_code: int = int16()

            name: str = string()
            partitions: Sequence[WritableTxnMarkerPartitionResult] = structs(
                WritableTxnMarkerPartitionResult
            )

        producer_id: int = int64()
        topics: Sequence[WritableTxnMarkerTopicResult] = structs(WritableTxnMarkerTopicResult)

    markers: Sequence[WritableTxnMarkerResult] = structs(WritableTxnMarkerResult)


API = api(27, WriteTxnMarkersRequest, WriteTxnMarkersResponse)
