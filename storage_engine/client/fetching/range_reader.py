"""Record batches of one offset range of one partition, with as many fetches on their way as the
link to the leader needs.

It returns whole batches, as bytes, each once and in order. Fetching ahead only saves time: after
any error its results are dropped, and a `BatchFetcher`, which handles retries and leaders that
move, reads on from the position. Source: R-CLI2, R-CLI5.
"""

import time
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from storage_engine.client.cluster import SILENT_CHECK_MS, SILENT_MS, Cluster
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.fetching.committed_batches import without_read
from storage_engine.client.fetching.fetch import (
    MAX_WAIT_MS,
    BatchFetcher,
    FetchedBatches,
)
from storage_engine.client.fetching.fetch_versions import check_wants, knows_ids, named_by_id
from storage_engine.client.fetching.fetch_window import MOST_IN_FLIGHT, FetchWindow
from storage_engine.client.fetching.fetched_parts import WholeBatches, is_framed
from storage_engine.client.fetching.isolation import isolation_level
from storage_engine.client.metadata import Leader
from storage_engine.client.settings import FETCH_BYTES
from storage_engine.core.errors import CorruptRecordError, DeadlineExceededError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.blocking import wait_readable
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.typed.projection import TypedWant

_POLL_MS = 1_000
"""The time for a fetch that is not sent ahead; it is repeated until the reader's timeout."""


def read_range(
    cluster: Cluster,
    tp: TopicPartition,
    start_offset: int,
    end_offset: int,
    *,
    max_bytes: int = FETCH_BYTES,
    most_in_flight: int = MOST_IN_FLIGHT,
    isolation: str = "read_uncommitted",
    timeout_ms: int | None = None,
    max_wait_ms: int = MAX_WAIT_MS,
    topic_id: UUID | None = None,
    typed_want: TypedWant | None = None,
) -> Generator[FetchedBatches, None, None]:
    """The batches of one partition with offsets from `start_offset` to below `end_offset`.

    Offsets at the edges and in gaps are the caller's affair: the first batch may begin before
    `start_offset`, the last may end after `end_offset`. One fetch is on its way while the caller
    works on the one before, and up to `most_in_flight` where answers take longer than that work
    (0: none). Raises as BatchFetcher.poll does; an `end_offset` that the log does not reach is
    waited for up to `timeout_ms`. `topic_id`: of which topic, None for whichever has the name.
    `typed_want`: what is asked for of a topic with a schema, None for records.
    """
    asking = _Asking(
        cluster=cluster,
        tp=tp,
        isolation=isolation,
        isolation_level=isolation_level(isolation),
        max_wait_ms=max_wait_ms,
        timeout_ms=timeout_ms or cluster.deadline_ms,
        topic_id=topic_id,
        typed_want=typed_want,
    )
    window = FetchWindow(end_offset, max_bytes=max_bytes, most_in_flight=most_in_flight)
    return _read(asking, window, start_offset, end_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """The parameters that all fetches of a range share."""

    cluster: Cluster
    tp: TopicPartition
    isolation: str
    isolation_level: int
    max_wait_ms: int
    timeout_ms: int
    topic_id: UUID | None
    typed_want: TypedWant | None

    def whole(self, records: memoryview) -> WholeBatches | None:
        """The whole parts of an answer."""
        return WholeBatches.of(records, framed=is_framed(self.typed_want))

    @property
    def topic_ids(self) -> dict[str, UUID] | None:
        return None if self.topic_id is None else {self.tp.topic: self.topic_id}


def _read(
    asking: _Asking, window: FetchWindow, start_offset: int, end_offset: int
) -> Generator[FetchedBatches, None, None]:
    position, last_epoch = start_offset, -1
    ahead = _FetchesAhead(asking, window)
    try:
        while position < end_offset:
            asked_at_ms = monotonic_ms()
            fetched = ahead.take(position)
            if fetched is None:
                patience_ms = max(1, asking.timeout_ms - (monotonic_ms() - asked_at_ms))
                max_bytes = window.limit(position, ahead.first_start)
                fetched = _fetch(asking, position, last_epoch, end_offset, max_bytes, patience_ms)
                ahead.agree()
                _learn(window, position, asking.whole(fetched.records))
            position, last_epoch = fetched.next_offset, fetched.last_epoch
            ahead.send(position)
            yield fetched
    finally:
        ahead.close()


def _fetch(
    asking: _Asking,
    position: int,
    last_epoch: int,
    end_offset: int,
    max_bytes: int,
    timeout_ms: int,
) -> FetchedBatches:
    """Fetches without sending ahead, with all retries. `last_epoch` is the epoch of the batch read
    before."""
    reader = BatchFetcher(
        asking.cluster,
        {asking.tp: (position, end_offset)},
        max_bytes=max_bytes,
        max_wait_ms=asking.max_wait_ms,
        isolation=asking.isolation,
        timeout_ms=timeout_ms,
        read_ahead=False,
        last_epochs={asking.tp: last_epoch},
        topic_ids=asking.topic_ids,
        typed_wants=(None if asking.typed_want is None else {asking.tp.topic: asking.typed_want}),
    )
    try:
        while not (found := reader.poll(_POLL_MS)):
            pass
    finally:
        reader.close()
    return found[0]


def _learn(window: FetchWindow, start_offset: int, whole: WholeBatches | None) -> None:
    if whole is not None:
        window.reached(
            start_offset,
            whole.next_offset,
            size=len(whole.records),
            last_batch=whole.last_batch_bytes,
        )


class _Sent(NamedTuple):
    """A fetch without an answer yet."""

    start_offset: int
    at_s: float


class _FetchesAhead:
    """Fetches that are sent one behind the other on one connection to the leader, which answers
    them in order. They are sent only to a leader, in an epoch, that has answered an ordinary fetch:
    that fetch made sure that the leader has the batches read before, which a fetch sent ahead can't
    check.
    """

    def __init__(self, asking: _Asking, window: FetchWindow) -> None:
        self._asking = asking
        self._window = window
        self._sent: deque[_Sent] = deque()
        self._connection: BrokerConnection | None = None
        self._broker_id = -1
        # Who has what was read, under which epoch.
        self._agreed: Leader | None = None
        # When the answer came that the caller works on; None for one that is no measure.
        self._work_began_s: float | None = None

    @property
    def first_start(self) -> int | None:
        """The offset at which the oldest fetch in flight begins."""
        return self._sent[0].start_offset if self._sent else None

    def agree(self) -> None:
        """A fetch in its turn was answered."""
        self._agreed = self._asking.cluster.known_leader(self._asking.tp)

    def take(self, position: int) -> FetchedBatches | None:
        """The batches that go on at `position`; None where no fetch in flight has them."""
        if self._work_began_s is not None:
            self._window.worked(time.perf_counter() - self._work_began_s)
            self._work_began_s = None
        while self._sent and self._sent[0].start_offset <= position:
            answer = self._receive(self._sent[0])
            whole = None if answer is None else self._whole(answer)
            if answer is None or whole is None:
                self._drop()
                return None
            _learn(self._window, self._sent.popleft().start_offset, whole)
            if whole.next_offset > position:
                return self._fetched(answer, whole, position)
        return None

    def _whole(self, answer: FetchPartitionResponse) -> WholeBatches | None:
        assert answer.records is None or isinstance(answer.records, memoryview)
        try:
            return None if answer.records is None else self._asking.whole(answer.records)
        except CorruptRecordError:
            # The next fetch in its turn says so.
            return None

    def _receive(self, sent: _Sent) -> FetchPartitionResponse | None:
        """Returns None when the fetch has failed."""
        connection = self._connection
        assert connection is not None
        deadline = self._deadline()
        try:
            if not self._wait(connection, deadline):
                return None
            came_s = time.perf_counter()
            response: FetchResponse = connection.receive(deadline)
        except (KafkaError, DeadlineExceededError):
            return None
        if response.error_code or len(response.partitions) != 1:
            return None
        (answer,) = response.partitions
        if answer.error_code:
            return None
        self._window.answered(came_s - sent.at_s)
        self._work_began_s = came_s
        return answer

    def _wait(self, connection: BrokerConnection, deadline: Deadline) -> bool:
        """Whether an answer comes, from a leader that still leads."""
        cluster, tp = self._asking.cluster, self._asking.tp
        patience_ms = self._asking.max_wait_ms + SILENT_MS
        while not wait_readable([connection.socket], min(patience_ms, deadline.left_ms)):
            if deadline.passed or cluster.has_moved([tp], self._broker_id, connection):
                return False
            patience_ms = SILENT_CHECK_MS
        return True

    def _fetched(
        self, answer: FetchPartitionResponse, whole: WholeBatches, position: int
    ) -> FetchedBatches:
        """The batches of an answer without those that earlier fetches have returned."""
        if not self._window.is_full(len(whole.records)):
            self._work_began_s = None
        want = self._asking.typed_want
        records, aborted = without_read(
            whole.records, answer.aborted_transactions or (), position, framed=is_framed(want)
        )
        return FetchedBatches(
            self._asking.tp,
            records,
            position,
            whole.next_offset,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            aborted,
            whole.last_epoch,
            want,
        )

    def send(self, position: int) -> None:
        """Sends as many fetches as should be in flight when all below `position` is read."""
        leader = self._asking.cluster.known_leader(self._asking.tp)
        if leader is None or leader.broker_id != self._broker_id or leader != self._agreed:
            self._drop()
        if leader is None or leader != self._agreed:
            return
        while len(self._sent) < self._window.wanted_in_flight:
            last_start = self._sent[-1].start_offset if self._sent else None
            start = self._window.next_start(position, last_start)
            if start is None:
                return
            try:
                connection = self._connected_to(leader.broker_id)
                if self._asking.topic_id is not None and not knows_ids(connection):
                    # The answers would have to be checked one by one, as BatchFetcher does.
                    return
                self._send(connection, start, leader)
            except (KafkaError, DeadlineExceededError):
                self._drop()
                return

    def _connected_to(self, broker_id: int) -> BrokerConnection:
        if self._connection is None:
            self._connection = self._asking.cluster.take(broker_id, self._deadline())
            self._broker_id = broker_id
        return self._connection

    def _send(self, connection: BrokerConnection, start_offset: int, leader: Leader) -> None:
        max_bytes = self._window.limit(start_offset)
        request = FetchRequest(
            max_wait_ms=self._asking.max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            partitions=[
                FetchPartition(
                    *self._asking.tp,
                    start_offset,
                    max_bytes,
                    leader.epoch,
                    want=self._asking.typed_want,
                )
            ],
            isolation_level=self._asking.isolation_level,
        )
        check_wants(connection, request)
        spec, request = named_by_id(connection, request, self._asking.topic_ids)
        connection.send(spec, request, self._deadline())
        self._sent.append(_Sent(start_offset, time.perf_counter()))

    def _deadline(self) -> Deadline:
        asking = self._asking
        longest_ms = asking.cluster.request_timeout_ms + asking.max_wait_ms
        return Deadline.after(min(longest_ms, asking.timeout_ms))

    def _drop(self) -> None:
        """Drops all fetches in flight."""
        self._sent.clear()
        self._work_began_s = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Returns the connection to the pool; with a fetch in flight it is closed."""
        if self._connection is not None:
            self._asking.cluster.give_back(self._connection)
            self._connection = None
