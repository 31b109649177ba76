"""DeleteRecords, versions 0-2; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, int32, int64, string, structs
from storage_engine.protocol.apis.struct_codec import api


# Version 1 is the same as version 0.
# Version 2 is the first flexible version.
@dataclass(slots=True, kw_only=True)
class DeleteRecordsRequest:
    @dataclass(slots=True, kw_only=True)
    class DeleteRecordsTopic:
        @dataclass(slots=True, kw_only=True)
        class DeleteRecordsPartition:
            partition_index: int = int32()
            offset: int = int64()

        name: str = string()
        partitions: Sequence[DeleteRecordsPartition] = structs(DeleteRecordsPartition)

    topics: Sequence[DeleteRecordsTopic] = structs(DeleteRecordsTopic)
    timeout_ms: int = int32()


# Starting in version 1, on quota violation, brokers send out responses before throttling.
# Version 2 is the first flexible version.
@dataclass(slots=True, kw_only=True)
class DeleteRecordsResponse:
    @dataclass(slots=True, kw_only=True)
    class DeleteRecordsTopicResult:
        @dataclass(slots=True, kw_only=True)
        class DeleteRecordsPartitionResult:
            partition_index: int = int32()
            low_watermark: int = int64()
            error_code: int = int16()

        name: str = string()
        partitions: Sequence[DeleteRecordsPartitionResult] = structs(DeleteRecordsPartitionResult)

    throttle_time_ms: int = int32()
    topics: Sequence[DeleteRecordsTopicResult] = structs(DeleteRecordsTopicResult)


API = api(21, DeleteRecordsRequest, DeleteRecordsResponse)
