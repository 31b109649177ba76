"""OffsetFetch, versions 1-9; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    boolean,
    int16,
    int32,
    int32s,
    int64,
    nullable_string,
    nullable_structs,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# In version 0, the request read offsets from ZK.
# Starting in version 1, the broker supports fetching offsets from the internal __consumer_offsets
# topic.
# Starting in version 2, the request can contain a null topics array to indicate that offsets
# for all topics should be fetched. It also returns a top level error code
# for group or coordinator level errors.
# Version 3, 4, and 5 are the same as version 2.
# Version 6 is the first flexible version.
# Version 7 is adding the require stable flag.
# Version 8 is adding support for fetching offsets for multiple groups at a time.
# Version 9 is the first version that can be used with the new consumer group protocol (KIP-848). It
# adds
# the MemberId and MemberEpoch fields. Those are filled in and validated when the new consumer
# protocol is used.
# Version 10 adds support for topic ids and removes support for topic names (KIP-848).
@dataclass(slots=True, kw_only=True)
class OffsetFetchRequest:
    @dataclass(slots=True, kw_only=True)
    class OffsetFetchRequestTopic:
        name: str = string(0, 7)
        partition_indexes: Sequence[int] = int32s(0, 7)

    @dataclass(slots=True, kw_only=True)
    class OffsetFetchRequestGroup:
        @dataclass(slots=True, kw_only=True)
        class OffsetFetchRequestTopics:
            name: str = string(8)
            partition_indexes: Sequence[int] = int32s(8)

        group_id: str = string(8)
        member_id: str | None = nullable_string(9, default=None)
        member_epoch: int = int32(9, default=-1)
        topics: Sequence[OffsetFetchRequestTopics] | None = nullable_structs(
            OffsetFetchRequestTopics, 8
        )

    group_id: str = string(0, 7)
    topics: Sequence[OffsetFetchRequestTopic] | None = nullable_structs(
        OffsetFetchRequestTopic, 0, 7, null_from=2
    )
    groups: Sequence[OffsetFetchRequestGroup] = structs(OffsetFetchRequestGroup, 8)
    require_stable: bool = boolean(7)


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Version 1 is the same as version 0.
# Version 2 adds a top-level error code.
# Version 3 adds the throttle time.
# Starting in version 4, on quota violation, brokers send out responses before throttling.
# Version 5 adds the leader epoch to the committed offset.
# Version 6 is the first flexible version.
# Version 7 adds pending offset commit as new error response on partition level.
# Version 8 is adding support for fetching offsets for multiple groups
# Version 9 is the first version that can be used with the new consumer group protocol (KIP-848).
# The response is
# the same as version 8 but can return STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID errors when the new
# consumer group
# protocol is used.
# Version 10 adds support for topic ids and removes support for topic names (KIP-848).
# It can return UNKNOWN_TOPIC_ID if topic IDs used and the topic is not found in metadata.
# Supported errors:
# - GROUP_AUTHORIZATION_FAILED (version 0+)
# - NOT_COORDINATOR (version 0+)
# - COORDINATOR_NOT_AVAILABLE (version 0+)
# - COORDINATOR_LOAD_IN_PROGRESS (version 0+)
# - GROUP_ID_NOT_FOUND (version 0+)
# - UNSTABLE_OFFSET_COMMIT (version 7+)
# - UNKNOWN_MEMBER_ID (version 9+)
# - STALE_MEMBER_EPOCH (version 9+)
# - UNKNOWN_TOPIC_ID (version 10+)
@dataclass(slots=True, kw_only=True)
class OffsetFetchResponse:
    @dataclass(slots=True, kw_only=True)
    class OffsetFetchResponseTopic:
        @dataclass(slots=True, kw_only=True)
        class OffsetFetchResponsePartition:
            partition_index: int = int32(0, 7)
            committed_offset: int = int64(0, 7)
            committed_leader_epoch: int = int32(5, 7, default=-1)
            metadata: str | None = nullable_string(0, 7)
            error_code: int = int16(0, 7)

        name: str = string(0, 7)
        partitions: Sequence[OffsetFetchResponsePartition] = structs(
            OffsetFetchResponsePartition, 0, 7
        )

    @dataclass(slots=True, kw_only=True)
    class OffsetFetchResponseGroup:
        @dataclass(slots=True, kw_only=True)
        class OffsetFetchResponseTopics:
            @dataclass(slots=True, kw_only=True)
            class OffsetFetchResponsePartitions:
                partition_index: int = int32(8)
                committed_offset: int = int64(8)
                committed_leader_epoch: int = int32(8, default=-1)
                metadata: str | None = nullable_string(8)
                error_code: int = int16(8)

            name: str = string(8)
            partitions: Sequence[OffsetFetchResponsePartitions] = structs(
                OffsetFetchResponsePartitions, 8
            )

        group_id: str = string(8)
        topics: Sequence[OffsetFetchResponseTopics] = structs(OffsetFetchResponseTopics, 8)
        error_code: int = int16(8)

    throttle_time_ms: int = int32(3)
    topics: Sequence[OffsetFetchResponseTopic] = structs(OffsetFetchResponseTopic, 0, 7)
    error_code: int = int16(2, 7)
    groups: Sequence[OffsetFetchResponseGroup] = structs(OffsetFetchResponseGroup, 8)


API = api(9, OffsetFetchRequest, OffsetFetchResponse)
