"""The schemas of topics, as a client knows them.

A schema is asked for once, from a leader of the topic, and again when a reader or writer finds a
version or a topic id that it does not know (`refresh`). Not thread-safe, like its `Cluster`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from storage_engine.client.cluster import Cluster
from storage_engine.client.connection import NotServedError
from storage_engine.client.retry import Retry
from storage_engine.core.errors import ConfigError, DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.typed.topic_schema import TopicSchema, schema_of
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.describe_schemas import API as DESCRIBE_SCHEMAS
from storage_engine.protocol.apis.describe_schemas import DescribedSchema, DescribeSchemasRequest


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A typed topic."""

    topic_id: UUID
    """The id of the topic; a topic that is created again under its name has another id."""
    schema: TopicSchema


class TopicSchemas:
    """The schemas that were asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, KnownSchema | None] = {}

    def get(self, topic: str) -> KnownSchema | None:
        """Return what is known of a topic, and ask for it the first time; None: it is not typed, or
        the brokers know no typed topics. KafkaError where the topic does not exist, or may not be
        seen."""
        if topic not in self._known:
            return self.refresh(topic)
        return self._known[topic]

    def refresh(self, topic: str) -> KnownSchema | None:
        """Ask for the schema of a topic, whatever is known, and return it."""
        self._known.pop(topic, None)
        retry = Retry(f"the schema of topic '{topic}'", Deadline.after(self._cluster.deadline_ms))
        attempt = 0
        while True:
            self._cluster.topic(topic)
            try:
                found = self._known[topic] = self._ask(topic, attempt)
            except NotServedError:
                found = self._known[topic] = None
            except (DeadlineExceededError, KafkaError) as error:
                retry.pause(error)
                self._cluster.refresh([topic])
                attempt += 1
                continue
            return found

    def ask_broker(self, broker_id: int, topic: str) -> KnownSchema | None:
        """Return the schema that one broker reports. It does not retry."""
        request = DescribeSchemasRequest(topics=[topic])
        return _known(topic, self._cluster.request(broker_id, DESCRIBE_SCHEMAS, request).topics)

    def _ask(self, topic: str, attempt: int) -> KnownSchema | None:
        """Ask a leader of the topic, another one at each attempt: leaders use the schema. Without a
        leader, any broker reads ZooKeeper for it."""
        leaders = self.leaders(topic)
        if leaders:
            return self.ask_broker(leaders[attempt % len(leaders)], topic)
        request = DescribeSchemasRequest(topics=[topic])
        return _known(topic, self._cluster.ask_any(DESCRIBE_SCHEMAS, request).topics)

    def leaders(self, topic: str) -> list[int]:
        """Return the live brokers that lead partitions of a topic, by the last metadata."""
        view = self._cluster.view
        known = view.topics.get(topic)
        found = {} if known is None else known.partitions
        leading = dict.fromkeys(partition.leader for partition in found.values())
        return [broker_id for broker_id in leading if broker_id in view.brokers]


def _known(topic: str, rows: Sequence[DescribedSchema]) -> KnownSchema | None:
    for row in rows:
        if row.topic != topic:
            continue
        code = ErrorCode.of(row.error_code)
        if code is not ErrorCode.NONE:
            raise KafkaError(f"topic '{topic}': {row.error_message or code.meaning}", code)
        if row.schema is None:
            return None
        try:
            return KnownSchema(row.topic_id, schema_of(row.schema))
        except ConfigError as error:
            raise ConfigError(
                f"the schema of topic '{topic}' can't be read, is this client older than the "
                f"brokers? {error}"
            ) from error
    raise KafkaError(
        f"a broker left topic '{topic}' out of its answer", ErrorCode.UNKNOWN_SERVER_ERROR
    )
