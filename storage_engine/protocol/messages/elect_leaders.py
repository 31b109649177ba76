"""ElectLeaders, versions 0-2; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    int8,
    int16,
    int32,
    int32s,
    nullable_string,
    nullable_structs,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 1 implements multiple leader election types, as described by KIP-460.
# Version 2 is the first flexible version.
@dataclass(slots=True, kw_only=True)
class ElectLeadersRequest:
    @dataclass(slots=True, kw_only=True)
    class TopicPartitions:
        topic: str = string()
        partitions: Sequence[int] = int32s()

    election_type: int = int8(1)
    topic_partitions: Sequence[TopicPartitions] | None = nullable_structs(TopicPartitions)
    timeout_ms: int = int32(default=60000)


# Version 1 adds a top-level error code.
# Version 2 is the first flexible version.
@dataclass(slots=True, kw_only=True)
class ElectLeadersResponse:
    @dataclass(slots=True, kw_only=True)
    class ReplicaElectionResult:
        @dataclass(slots=True, kw_only=True)
        class PartitionResult:
            partition_id: int = int32()
            error_code: int = int16()
            error_message: str | None = nullable_string()

        topic: str = string()
        partition_result: Sequence[PartitionResult] = structs(PartitionResult)

    throttle_time_ms: int = int32()
    error_code: int = int16(1)
    replica_election_results: Sequence[ReplicaElectionResult] = structs(ReplicaElectionResult)


API = api(43, ElectLeadersRequest, ElectLeadersResponse)
