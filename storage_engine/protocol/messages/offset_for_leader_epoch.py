"""OffsetForLeaderEpoch, versions 2-4; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, int32, int64, string, structs
from storage_engine.protocol.apis.struct_codec import api


# Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline.
# Version 1 is the same as version 0.
# Version 2 adds the current leader epoch to support fencing.
# Version 3 adds ReplicaId (the default is -2 which conventionally represents a
# "debug" consumer which is allowed to see offsets beyond the high watermark).
# Followers will use this replicaId when using an older version of the protocol.
# Version 4 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochRequest:
    @dataclass(slots=True, kw_only=True)
    class OffsetForLeaderTopic:
        @dataclass(slots=True, kw_only=True)
        class OffsetForLeaderPartition:
            partition: int = int32()
            current_leader_epoch: int = int32(default=-1)
            leader_epoch: int = int32()

        topic: str = string()
        partitions: Sequence[OffsetForLeaderPartition] = structs(OffsetForLeaderPartition)

    replica_id: int = int32(3, default=-2)
    topics: Sequence[OffsetForLeaderTopic] = structs(OffsetForLeaderTopic)


# Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline.
# Version 1 added the leader epoch to the response.
# Version 2 added the throttle time.
# Version 3 is the same as version 2.
# Version 4 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    @dataclass(slots=True, kw_only=True)
    class OffsetForLeaderTopicResult:
        @dataclass(slots=True, kw_only=True)
        class EpochEndOffset:
            error_code: int = int16()
            partition: int = int32()
            leader_epoch: int = int32(default=-1)
            end_offset: int = int64(default=-1)

        topic: str = string()
        partitions: Sequence[EpochEndOffset] = structs(EpochEndOffset)

    throttle_time_ms: int = int32()
    topics: Sequence[OffsetForLeaderTopicResult] = structs(OffsetForLeaderTopicResult)


API = api(23, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
