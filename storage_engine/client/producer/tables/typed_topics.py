"""What a producer has to know of typed topics before it can send tables to them.

Only the producer's loop asks brokers. What is known is asked for again after `metadata.max.age.ms`,
and where a table does not fit it: the schema may have changed.
"""

from typing import NamedTuple

from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.tables.topic_limits import max_message_bytes
from storage_engine.client.topic_schemas import KnownSchema, TopicSchemas
from storage_engine.net.deadline import monotonic_ms

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
        """Whether `get` returns what is still fresh."""
        found = self._known.get(topic)
        return found is not None and monotonic_ms() - found[1] < self._max_age_ms

    def get(self, topic: str) -> TypedTopic | None:
        """What was learnt last; None, too, where it was forgotten since."""
        found = self._known.get(topic)
        return None if found is None else found[0]

    def forget(self, topic: str) -> None:
        """It does not fit any more."""
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
