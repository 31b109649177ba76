"""DeleteTopics, versions 1-6; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from storage_engine.protocol.apis.fields import (
    int16,
    int32,
    nullable_string,
    strings,
    structs,
    uuid,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Versions 0, 1, 2, and 3 are the same.
# Version 4 is the first flexible version.
# Version 5 adds ErrorMessage in the response and may return a THROTTLING_QUOTA_EXCEEDED error
# in the response if the topics deletion is throttled (KIP-599).
# Version 6 reorganizes topics, adds topic IDs and allows topic names to be null.
@dataclass(slots=True, kw_only=True)
class DeleteTopicsRequest:
    @dataclass(slots=True, kw_only=True)
    class DeleteTopicState:
        name: str | None = nullable_string(6, default=None)
        topic_id: UUID = uuid(6)

    topics: Sequence[DeleteTopicState] = structs(DeleteTopicState, 6)
    topic_names: Sequence[str] = strings(0, 5)
    timeout_ms: int = int32()


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Version 1 adds the throttle time.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Starting in version 3, a TOPIC_DELETION_DISABLED error code may be returned.
# Version 4 is the first flexible version.
# Version 5 adds ErrorMessage in the response and may return a THROTTLING_QUOTA_EXCEEDED error
# in the response if the topics deletion is throttled (KIP-599).
# Version 6 adds topic ID to responses. An UNSUPPORTED_VERSION error code will be returned when
# attempting to
# delete using topic IDs when IBP < 2.8. UNKNOWN_TOPIC_ID error code will be returned when IBP is at
# least 2.8, but
# the topic ID was not found.
@dataclass(slots=True, kw_only=True)
class DeleteTopicsResponse:
    @dataclass(slots=True, kw_only=True)
    class DeletableTopicResult:
        name: str | None = nullable_string(null_from=6)
        topic_id: UUID = uuid(6)
        error_code: int = int16()
        error_message: str | None = nullable_string(5, default=None)

    throttle_time_ms: int = int32()
    responses: Sequence[DeletableTopicResult] = structs(DeletableTopicResult)


API = api(20, DeleteTopicsRequest, DeleteTopicsResponse)
