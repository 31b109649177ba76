"""AlterReplicaLogDirs, versions 1-2; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, int32, int32s, string, structs
from storage_engine.protocol.apis.struct_codec import api


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Version 1 is the same as version 0.
# Version 2 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirsRequest:
    @dataclass(slots=True, kw_only=True)
    class AlterReplicaLogDir:
        @dataclass(slots=True, kw_only=True)
        class AlterReplicaLogDirTopic:
            name: str = string()
            partitions: Sequence[int] = int32s()

        path: str = string()
        topics: Sequence[AlterReplicaLogDirTopic] = structs(AlterReplicaLogDirTopic)

    dirs: Sequence[AlterReplicaLogDir] = structs(AlterReplicaLogDir)


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Starting in version 1, on quota violation brokers send out responses before throttling.
# Version 2 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirsResponse:
    @dataclass(slots=True, kw_only=True)
    class AlterReplicaLogDirTopicResult:
        @dataclass(slots=True, kw_only=True)
        class AlterReplicaLogDirPartitionResult:
            partition_index: int = int32()
            error_code: int = int16()

        topic_name: str = string()
        partitions: Sequence[AlterReplicaLogDirPartitionResult] = structs(
            AlterReplicaLogDirPartitionResult
        )

    throttle_time_ms: int = int32()
    results: Sequence[AlterReplicaLogDirTopicResult] = structs(AlterReplicaLogDirTopicResult)


API = api(34, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)
