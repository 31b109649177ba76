"""OffsetCommit, versions 2-9; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    int16,
    int32,
    int64,
    nullable_string,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline.
# Version 1 adds timestamp and group membership information, as well as the commit timestamp.
# Version 2 adds retention time.  It removes the commit timestamp added in version 1.
# Version 3 and 4 are the same as version 2.
# Version 5 removes the retention time, which is now controlled only by a broker configuration.
# Version 6 adds the leader epoch for fencing.
# version 7 adds a new field called groupInstanceId to indicate member identity across restarts.
# Version 8 is the first flexible version.
# Version 9 is the first version that can be used with the new consumer group protocol (KIP-848).
# The
# request is the same as version 8.
# Version 10 adds support for topic ids and removes support for topic names (KIP-848).
@dataclass(slots=True, kw_only=True)
class OffsetCommitRequest:
    @dataclass(slots=True, kw_only=True)
    class OffsetCommitRequestTopic:
        @dataclass(slots=True, kw_only=True)
        class OffsetCommitRequestPartition:
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32(6, default=-1)
            committed_metadata: str | None = nullable_string()

        name: str = string()
        partitions: Sequence[OffsetCommitRequestPartition] = structs(OffsetCommitRequestPartition)

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = nullable_string(7, default=None)
    retention_time_ms: int = int64(2, 4, default=-1)
    topics: Sequence[OffsetCommitRequestTopic] = structs(OffsetCommitRequestTopic)


# Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline.
# Versions 1 and 2 are the same as version 0.
# Version 3 adds the throttle time to the response.
# Starting in version 4, on quota violation, brokers send out responses before throttling.
# Versions 5 and 6 are the same as version 4.
# Version 7 offsetCommitRequest supports a new field called groupInstanceId to indicate member
# identity across restarts.
# Version 8 is the first flexible version.
# Version 9 is the first version that can be used with the new consumer group protocol (KIP-848).
# The response is
# the same as version 8 but can return STALE_MEMBER_EPOCH when the new consumer group protocol is
# used and
# GROUP_ID_NOT_FOUND when the group does not exist for both protocols.
# Version 10 adds support for topic ids and removes support for topic names (KIP-848).
# Supported errors:
# - GROUP_AUTHORIZATION_FAILED (version 0+)
# - NOT_COORDINATOR (version 0+)
# - COORDINATOR_NOT_AVAILABLE (version 0+)
# - COORDINATOR_LOAD_IN_PROGRESS (version 0+)
# - ILLEGAL_GENERATION (version 1+)
# - UNKNOWN_MEMBER_ID (version 1+)
# - INVALID_COMMIT_OFFSET_SIZE (version 0+)
# - FENCED_MEMBER_EPOCH (version 7+)
# - GROUP_ID_NOT_FOUND (version 9+)
# - STALE_MEMBER_EPOCH (version 9+)
# - UNKNOWN_TOPIC_ID (version 10+)
@dataclass(slots=True, kw_only=True)
class OffsetCommitResponse:
    @dataclass(slots=True, kw_only=True)
    class OffsetCommitResponseTopic:
        @dataclass(slots=True, kw_only=True)
        class OffsetCommitResponsePartition:
            partition_index: int = int32()
            error_code: int = int16()

        name: str = string()
        partitions: Sequence[OffsetCommitResponsePartition] = structs(OffsetCommitResponsePartition)

    throttle_time_ms: int = int32(3)
    topics: Sequence[OffsetCommitResponseTopic] = structs(OffsetCommitResponseTopic)


API = api(8, OffsetCommitRequest, OffsetCommitResponse)
