"""The fetches on one connection to a leader.

A fetch names its topics by their ids where the reader has given them and the broker understands
ids, else by their names. A wish for columns of a topic with a schema is sent only to a broker that
serves schemas.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from storage_engine.client.cluster import ISOLATION_LEVELS, Cluster
from storage_engine.client.fetching.fetch_cursor import Ask
from storage_engine.client.in_flight import InFlight, LeaderRequests
from storage_engine.core.errors import ConfigError, UnsupportedVersionError
from storage_engine.core.ids import topic_id_to_text
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.describe_schemas import API as DESCRIBE_SCHEMAS
from storage_engine.protocol.apis.fetch import API as BY_ID_OR_NAME
from storage_engine.protocol.apis.fetch import (
    BY_ID,
    BY_NAME,
    FIRST_WITH_TOPIC_IDS,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)


class LeaderFetches(LeaderRequests[Ask]):
    """The fetches in flight to one leader."""

    def __init__(
        self,
        cluster: Cluster,
        broker_id: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
        isolation_level: int,
        topic_ids: Mapping[str, UUID] | None,
        only_by_id: bool = False,
    ) -> None:
        """`topic_ids`: of all topics that are fetched; None where any topic of that name will do.
        `only_by_id`: UnsupportedVersionError for a broker that knows topics by their names only."""
        self._max_bytes = max_bytes
        self._max_wait_ms = max_wait_ms
        self._isolation_level = isolation_level
        self._timeout_ms = cluster.request_timeout_ms + max_wait_ms
        # Topics may be added to it, and get other ids.
        self._topic_ids = {} if topic_ids is None else topic_ids
        # By id, where topics are named so.
        self._names: dict[str, str] = {}
        self.names_by_id = False
        """Whether fetches name topics by their ids (Kafka 3.1)."""
        super().__init__(broker_id, cluster.take(broker_id, Deadline.after(self._timeout_ms)))
        if topic_ids is None:
            return
        try:
            version = self.connection.version_for(BY_ID if only_by_id else BY_ID_OR_NAME)
        except UnsupportedVersionError:
            self.connection.close()
            raise
        self.names_by_id = version >= FIRST_WITH_TOPIC_IDS

    def send(self, asks: Sequence[Ask]) -> None:
        """Send one request for all of `asks`. KafkaError or DeadlineExceededError where that fails;
        UnsupportedVersionError where columns are wanted and the broker serves no schemas: it would
        answer with records, which the reader could not tell from columns."""
        if any(ask.cursor.typed_want is not None for ask in asks):
            self.connection.version_for(DESCRIBE_SCHEMAS)
        ids = None
        if self.names_by_id:
            topics = {ask.cursor.tp.topic for ask in asks}
            ids = {topic: topic_id_to_text(self._topic_ids[topic]) for topic in topics}
            self._names |= {each: topic for topic, each in ids.items()}
        share = max(self._max_bytes // len(asks), self._max_bytes // 8)
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            partitions=[
                FetchPartition(
                    ask.cursor.tp.topic if ids is None else ids[ask.cursor.tp.topic],
                    ask.cursor.tp.partition,
                    ask.start_offset,
                    ask.limit(share),
                    ask.leader.epoch,
                    ask.last_epoch,
                    want=ask.cursor.typed_want,
                )
                for ask in asks
            ],
            isolation_level=self._isolation_level,
        )
        spec = BY_NAME if ids is None else BY_ID
        self.connection.send(spec, request, Deadline.after(self._timeout_ms))
        parts = {ask.cursor.tp: ask for ask in asks}
        self.sent.append(InFlight(parts, self._timeout_ms, held_ms=self._max_wait_ms))
        for ask in asks:
            ask.cursor.add(ask)

    def receive(self) -> tuple[InFlight[Ask], FetchResponse]:
        """Return the oldest fetch and its answer, in which topics have their names again.
        KafkaError or DeadlineExceededError."""
        response: FetchResponse = self.connection.receive(Deadline.after(self._timeout_ms))
        fetch = self.sent.popleft()
        if self.sent:
            self.sent[0].wait(self._timeout_ms, held_ms=self._max_wait_ms)
        if self.names_by_id:
            named = [
                each._replace(topic=self._names.get(each.topic, "")) for each in response.partitions
            ]
            response = response._replace(partitions=named)
        return fetch, response


def level_of(isolation: str) -> int:
    """The isolation level of a request; ConfigError."""
    if isolation not in ISOLATION_LEVELS:
        levels = ", ".join(ISOLATION_LEVELS)
        raise ConfigError(f"the isolation level is '{isolation}'; it must be one of {levels}")
    return ISOLATION_LEVELS[isolation]
