"""CreateTopics, versions 2-7; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.fields import (
    boolean,
    int8,
    int16,
    int32,
    int32s,
    nullable_string,
    nullable_structs,
    string,
    structs,
    uuid,
)
from storage_engine.protocol.apis.struct_codec import api


# Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline.
# Version 1 adds validateOnly.
# Version 4 makes partitions/replicationFactor optional even when assignments are not present
# (KIP-464)
# Version 5 is the first flexible version.
# Version 5 also returns topic configs in the response (KIP-525).
# Version 6 is identical to version 5 but may return a THROTTLING_QUOTA_EXCEEDED error
# in the response if the topics creation is throttled (KIP-599).
# Version 7 is the same as version 6.
@dataclass(slots=True, kw_only=True)
class CreateTopicsRequest:
    @dataclass(slots=True, kw_only=True)
    class CreatableTopic:
        @dataclass(slots=True, kw_only=True)
        class CreatableReplicaAssignment:
            partition_index: int = int32()
            broker_ids: Sequence[int] = int32s()

        @dataclass(slots=True, kw_only=True)
        class CreatableTopicConfig:
            name: str = string()
            value: str | None = nullable_string()

        name: str = string()
        num_partitions: int = int32()
        replication_factor: int = int16()
        assignments: Sequence[CreatableReplicaAssignment] = structs(CreatableReplicaAssignment)
        configs: Sequence[CreatableTopicConfig] = structs(CreatableTopicConfig)

    topics: Sequence[CreatableTopic] = structs(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


# Versions 0-1 were removed in Apache Kafka 4.0, Version 2 is the new baseline.
# Version 1 adds a per-topic error message string.
# Version 2 adds the throttle time.
# Starting in version 3, on quota violation, brokers send out responses before throttling.
# Version 4 makes partitions/replicationFactor optional even when assignments are not present
# (KIP-464).
# Version 5 is the first flexible version.
# Version 5 also returns topic configs in the response (KIP-525).
# Version 6 is identical to version 5 but may return a THROTTLING_QUOTA_EXCEEDED error
# in the response if the topics creation is throttled (KIP-599).
# Version 7 returns the topic ID of the newly created topic if creation is successful.
@dataclass(slots=True, kw_only=True)
class CreateTopicsResponse:
    @dataclass(slots=True, kw_only=True)
    class CreatableTopicResult:
        @dataclass(slots=True, kw_only=True)
        class CreatableTopicConfigs:
            name: str = string(5)
            value: str | None = nullable_string(5)
            read_only: bool = boolean(5)
            config_source: int = int8(5, default=-1)
            is_sensitive: bool = boolean(5)

        name: str = string()
        topic_id: UUID = uuid(7)
        error_code: int = int16()
        error_message: str | None = nullable_string()
        topic_config_error_code: int = int16(5, tag=0)
        num_partitions: int = int32(5, default=-1)
        replication_factor: int = int16(5, default=-1)
        configs: Sequence[CreatableTopicConfigs] | None = nullable_structs(CreatableTopicConfigs, 5)

    throttle_time_ms: int = int32()
    topics: Sequence[CreatableTopicResult] = structs(CreatableTopicResult)


API = api(19, CreateTopicsRequest, CreateTopicsResponse)
