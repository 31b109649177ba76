"""Schemas and limits of typed topics, which a producer needs before it sends tables to them.

Only the producer's loop asks brokers. A schema is asked for again after `metadata.max.age.ms`, and
where a table does not fit it: it may have changed.
"""

from typing import NamedTuple

from storage_engine.client.cluster import Cluster
from storage_engine.client.topic_schemas import KnownSchema, TopicSchemas
from storage_engine.core.errors import ErrorCode
from storage_engine.net.deadline import monotonic_ms
from storage_engine.protocol.messages.describe_configs import API as DESCRIBE_CONFIGS
from storage_engine.protocol.messages.describe_configs import DescribeConfigsRequest

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default."""

_TOPIC_RESOURCE = 2
_MAX_MESSAGE_BYTES = "max.message.bytes"

REQUEST_MS = 5_000
"""The deadline of the cluster that is asked; batches of other topics wait meanwhile."""


class TypedTopic(NamedTuple):
    """A topic with a schema."""

    known: KnownSchema
    largest_batch_bytes: int


class TypedTopics:
    """The typed topics of one producer. A topic that has no schema is None."""

    def __init__(self, cluster: Cluster, *, max_age_ms: int) -> None:
        """`cluster` is this object's own."""
        self._cluster = cluster
        self._schemas = TopicSchemas(cluster)
        self._max_age_ms = max_age_ms
        self._known: dict[str, tuple[TypedTopic | None, int]] = {}

    def is_known(self, topic: str) -> bool:
        """Whether the entry that `get` returns is still fresh."""
        found = self._known.get(topic)
        return found is not None and monotonic_ms() - found[1] < self._max_age_ms

    def get(self, topic: str) -> TypedTopic | None:
        """Return the last known entry; None, too, where it was forgotten since."""
        found = self._known.get(topic)
        return None if found is None else found[0]

    def forget(self, topic: str) -> None:
        """Forget an entry that does not fit any more."""
        self._known.pop(topic, None)

    def learn(self, topic: str) -> None:
        """Ask brokers, in the loop's thread."""
        schema = self._schemas.refresh(topic)
        found = None
        if schema is not None:
            found = TypedTopic(schema, max_message_bytes(self._cluster, topic))
        self._known[topic] = (found, monotonic_ms())

    def close(self) -> None:
        """Close all connections."""
        self._cluster.close()


def max_message_bytes(cluster: Cluster, topic: str) -> int:
    """Return the setting, or its default where the client may not read it. KafkaError and
    DeadlineExceededError when no broker answers."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE,
        resource_name=topic,
        configuration_keys=[_MAX_MESSAGE_BYTES],
    )
    message = DescribeConfigsRequest(
        resources=[resource], include_synonyms=False, include_documentation=False
    )
    (result,) = cluster.ask_any(DESCRIBE_CONFIGS, message).results
    if ErrorCode.of(result.error_code) is ErrorCode.NONE:
        for each in result.configs:
            if each.name == _MAX_MESSAGE_BYTES and each.value:
                return int(each.value)
    return DEFAULT_MAX_MESSAGE_BYTES
