"""CreatePartitions, versions 0-3; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    boolean,
    int16,
    int32,
    int32s,
    nullable_string,
    nullable_structs,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 1 is the same as version 0.
# Version 2 adds flexible version support
# Version 3 is identical to version 2 but may return a THROTTLING_QUOTA_EXCEEDED error
# in the response if the partitions creation is throttled (KIP-599).
@dataclass(slots=True, kw_only=True)
class CreatePartitionsRequest:
    @dataclass(slots=True, kw_only=True)
    class CreatePartitionsTopic:
        @dataclass(slots=True, kw_only=True)
        class CreatePartitionsAssignment:
            broker_ids: Sequence[int] = int32s()

        name: str = string()
        count: int = int32()
        assignments: Sequence[CreatePartitionsAssignment] | None = nullable_structs(
            CreatePartitionsAssignment
        )

    topics: Sequence[CreatePartitionsTopic] = structs(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


# Starting in version 1, on quota violation, brokers send out responses before throttling.
# Version 2 adds flexible version support
# Version 3 is identical to version 2 but may return a THROTTLING_QUOTA_EXCEEDED error
# in the response if the partitions creation is throttled (KIP-599).
@dataclass(slots=True, kw_only=True)
class CreatePartitionsResponse:
    @dataclass(slots=True, kw_only=True)
    class CreatePartitionsTopicResult:
        name: str = string()
        error_code: int = int16()
        error_message: str | None = nullable_string(default=None)

    throttle_time_ms: int = int32()
    results: Sequence[CreatePartitionsTopicResult] = structs(CreatePartitionsTopicResult)


API = api(37, CreatePartitionsRequest, CreatePartitionsResponse)
