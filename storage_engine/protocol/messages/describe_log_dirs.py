"""DescribeLogDirs, versions 1-4; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    boolean,
    int16,
    int32,
    int32s,
    int64,
    nullable_structs,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Version 1 is the same as version 0.
# Version 2 is the first flexible version.
# Version 3 is the same as version 2 (new field in response).
# Version 4 is the same as version 2 (new fields in response).
# Version 5 is the same as version 2 (new fields in response).
@dataclass(slots=True, kw_only=True)
class DescribeLogDirsRequest:
    @dataclass(slots=True, kw_only=True)
    class DescribableLogDirTopic:
        topic: str = string()
        partitions: Sequence[int] = int32s()

    topics: Sequence[DescribableLogDirTopic] | None = nullable_structs(DescribableLogDirTopic)


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Starting in version 1, on quota violation, brokers send out responses before throttling.
# Version 2 is the first flexible version.
# Version 3 adds the top-level ErrorCode field
# Version 4 adds the TotalBytes and UsableBytes fields
# Version 5 adds IsCordoned field
@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResponse:
    @dataclass(slots=True, kw_only=True)
    class DescribeLogDirsResult:
        @dataclass(slots=True, kw_only=True)
        class DescribeLogDirsTopic:
            @dataclass(slots=True, kw_only=True)
            class DescribeLogDirsPartition:
                partition_index: int = int32()
                partition_size: int = int64()
                offset_lag: int = int64()
                is_future_key: bool = boolean()

            name: str = string()
            partitions: Sequence[DescribeLogDirsPartition] = structs(DescribeLogDirsPartition)

        error_code: int = int16()
        log_dir: str = string()
        topics: Sequence[DescribeLogDirsTopic] = structs(DescribeLogDirsTopic)
        total_bytes: int = int64(4, default=-1)
        usable_bytes: int = int64(4, default=-1)

    throttle_time_ms: int = int32()
    error_code: int = int16(3)
    results: Sequence[DescribeLogDirsResult] = structs(DescribeLogDirsResult)


API = api(35, DescribeLogDirsRequest, DescribeLogDirsResponse)
