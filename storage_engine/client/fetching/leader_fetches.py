"""The fetches on one connection to a leader, which answers them in the order in which they were
sent.

A fetch names its topics by their ids, where both sides can and the reader wants certain topics,
else by their names. What it wants of topics with a schema is said only to brokers that know of
schemas.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from uuid import UUID

from storage_engine.client.cluster import SILENT_CHECK_MS, SILENT_MS, Cluster
from storage_engine.client.fetching.fetch_cursor import Ask
from storage_engine.core.errors import UnsupportedVersionError
from storage_engine.core.ids import TopicPartition, topic_id_to_text
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.protocol.apis.describe_schemas import API as DESCRIBE_SCHEMAS
from storage_engine.protocol.apis.fetch import API as BY_ID
from storage_engine.protocol.apis.fetch import (
    BY_NAME,
    FIRST_WITH_TOPIC_IDS,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)


class FetchInFlight:
    """What is asked for, and until when it is waited for."""

    __slots__ = ("asks", "begun_ns", "check_at_ms", "deadline")

    def __init__(self, asks: Sequence[Ask]) -> None:
        self.asks: dict[TopicPartition, Ask] = {ask.cursor.tp: ask for ask in asks}
        self.begun_ns = time.perf_counter_ns()
        self.deadline: Deadline
        self.check_at_ms: int
        """When to look for other leaders, since this one may hang."""

    def wait(self, timeout_ms: int, max_wait_ms: int) -> None:
        """From now on, since it is the oldest."""
        self.deadline = Deadline.after(timeout_ms)
        self.check_at_ms = monotonic_ms() + max_wait_ms + SILENT_MS

    def check_again(self) -> None:
        """After a look for other leaders."""
        self.check_at_ms = monotonic_ms() + SILENT_CHECK_MS


class LeaderFetches:
    """`sent` are those without an answer, the oldest first. Only the oldest is waited for."""

    __slots__ = (
        "_ids",
        "_isolation_level",
        "_max_bytes",
        "_max_wait_ms",
        "_names",
        "_timeout_ms",
        "connection",
        "names_by_id",
        "sent",
    )

    def __init__(
        self,
        cluster: Cluster,
        broker_id: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
        isolation_level: int,
        topic_ids: Mapping[str, UUID] | None,
    ) -> None:
        """`topic_ids`: of all topics that are fetched; None where any topic of that name will
        do."""
        self._max_bytes = max_bytes
        self._max_wait_ms = max_wait_ms
        self._isolation_level = isolation_level
        self._timeout_ms = cluster.request_timeout_ms + max_wait_ms
        self._ids: dict[str, str] = {}
        # By id, where topics are named so.
        self._names: dict[str, str] = {}
        self.names_by_id = False
        """Whether fetches name topics by their ids (Kafka 3.1)."""
        self.sent: deque[FetchInFlight] = deque()
        self.connection = cluster.take(broker_id, Deadline.after(self._timeout_ms))
        if topic_ids is None:
            return
        try:
            self.names_by_id = self.connection.version_for(BY_ID) >= FIRST_WITH_TOPIC_IDS
        except UnsupportedVersionError:
            self.connection.close()
            raise
        self._ids = {name: topic_id_to_text(each) for name, each in topic_ids.items()}
        self._names = {each: name for name, each in self._ids.items()}

    def send(self, asks: Sequence[Ask]) -> None:
        """Raises KafkaError and DeadlineExceededError; UnsupportedVersionError where columns are
        asked for and the broker knows none: it would answer with records, which nobody could tell
        from columns."""
        if any(ask.cursor.typed_want is not None for ask in asks):
            self.connection.version_for(DESCRIBE_SCHEMAS)
        ids = self._ids if self.names_by_id else None
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
        fetch = FetchInFlight(asks)
        fetch.wait(self._timeout_ms, self._max_wait_ms)
        self.sent.append(fetch)
        for ask in asks:
            ask.cursor.add(ask)

    def receive(self) -> tuple[FetchInFlight, FetchResponse]:
        """The oldest, and its answer, with names in it. KafkaError and DeadlineExceededError."""
        response: FetchResponse = self.connection.receive(Deadline.after(self._timeout_ms))
        fetch = self.sent.popleft()
        if self.sent:
            self.sent[0].wait(self._timeout_ms, self._max_wait_ms)
        if self.names_by_id:
            named = [
                each._replace(topic=self._names.get(each.topic, "")) for each in response.partitions
            ]
            response = response._replace(partitions=named)
        return fetch, response
