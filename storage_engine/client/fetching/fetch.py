"""Record batches of several partitions, from their leaders; `range_reader.py` reads one range.

It returns whole batches, as bytes, each once and in order. The next fetch is on its way before the
caller gets the answer to the last one; a leader that moves or dies only delays. A leader that never
had the records read before is noticed, because each fetch carries the epoch of the last batch.
Source: R-CLI2, R-CLI5; KIP-227 is not used, KIP-320 and KIP-595 for leader epochs.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from storage_engine.client.cluster import (
    EARLIEST,
    LATEST,
    LOOKUP_MS,
    SILENT_CHECK_MS,
    Cluster,
)
from storage_engine.client.fetching.committed_batches import committed
from storage_engine.client.fetching.fetch_cursor import Cursor
from storage_engine.client.fetching.fetch_in_flight import FetchInFlight
from storage_engine.client.fetching.fetch_versions import check_wants, named_by_id
from storage_engine.client.fetching.fetched_parts import is_framed
from storage_engine.client.fetching.isolation import isolation_level
from storage_engine.client.settings import FETCH_BYTES
from storage_engine.core.errors import (
    AuthenticationError,
    CorruptRecordError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    LogTruncatedError,
    OffsetOutOfRangeError,
)
from storage_engine.core.ids import TopicPartition, topic_id_to_text
from storage_engine.net.blocking import wait_readable
from storage_engine.net.deadline import Deadline, monotonic_ms, sleep_ms
from storage_engine.protocol.apis.current_leaders import LeaderNode
from storage_engine.protocol.apis.fetch import API as FETCH_BY_ID
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.typed.projection import TypedWant

MAX_WAIT_MS = 500
"""`fetch.max.wait.ms`: how long a leader holds a fetch when it has nothing new."""

_LONGEST_WAIT_MS = 100
"""Retries are looked at this often."""

OnOutOfRange = Callable[[TopicPartition, int, int, int], int]
"""Called with a partition, the requested offset, and the half-open range of offsets that exist."""

OnTruncated = Callable[[TopicPartition, int, int], int]
"""Called with a partition, the requested offset, and the first offset at which the log has other
records than were read."""

OnFailed = Callable[[TopicPartition, int, HeadraceError], None]
"""Called with a partition that is given up, the offset up to which it was read, and why."""


class FetchedBatches(NamedTuple):
    """Whole batches of one partition, from the one that holds `start_offset` on."""

    tp: TopicPartition
    records: memoryview
    """Lives as long as a view of it is held."""
    start_offset: int
    """The offset asked for; the first batch may begin before it."""
    next_offset: int
    """The offset of the next fetch, which is after the last batch."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: tuple[tuple[int, int], ...]
    """(producer id, first offset) of aborted transactions in the range; with read_committed."""
    last_epoch: int = -1
    """The leader epoch of the last batch."""
    typed_want: TypedWant | None = None
    """What was asked for of a topic with a schema."""

    @property
    def framed(self) -> bool:
        """Whether `records` are frames of a projection."""
        return is_framed(self.typed_want)

    def committed(self) -> Iterator[memoryview]:
        """The batches in pieces as large as can be, without those of aborted transactions."""
        return committed(self.records, self.aborted_transactions, framed=self.framed)


class BatchFetcher:
    """Reads several partitions at a time, each from its start to its end (None: for ever)."""

    def __init__(
        self,
        cluster: Cluster,
        ranges: Mapping[TopicPartition, tuple[int, int | None]],
        *,
        max_bytes: int = FETCH_BYTES,
        max_wait_ms: int = MAX_WAIT_MS,
        isolation: str = "read_uncommitted",
        timeout_ms: int | None = None,
        read_ahead: bool = True,
        on_out_of_range: OnOutOfRange | None = None,
        on_truncated: OnTruncated | None = None,
        last_epochs: Mapping[TopicPartition, int] | None = None,
        topic_ids: Mapping[str, UUID] | None = None,
        on_failed: OnFailed | None = None,
        guessed_offset_bytes: int = 0,
        typed_wants: Mapping[str, TypedWant] | None = None,
    ) -> None:
        """`timeout_ms`: how long a partition may fail, or have nothing below its end, before that
        is an error (default: the cluster's deadline). `read_ahead` False sends the next fetch only
        when it is polled for. `on_out_of_range` and `on_truncated` say where to go on instead, or
        raise. `last_epochs`: the leader epoch of the batch before the start, where it is known.
        `topic_ids`, by name: only these very topics are read, so that one that is created again is
        an error of `poll` (KafkaError UNKNOWN_TOPIC_ID). None: whichever has the name. `on_failed`:
        gets the partitions that `poll` would raise an error for, and the others are read on; an
        offset out of range is not looked into then. `guessed_offset_bytes`: a first fetch asks for
        so much an offset up to the partition's end, and later ones for what the answers had (0: the
        first for a full share). `typed_wants`: what is asked for of topics with a schema, by name;
        of others, records."""
        epochs = last_epochs or {}
        self._cluster = cluster
        self._cursors = {
            tp: Cursor(
                tp,
                start_offset,
                end_offset,
                last_epoch=epochs.get(tp, -1),
                offset_bytes=guessed_offset_bytes,
                typed_want=(typed_wants or {}).get(tp.topic),
            )
            for tp, (start_offset, end_offset) in ranges.items()
        }
        self._max_bytes = max_bytes
        self._max_wait_ms = max_wait_ms
        self._isolation_level = isolation_level(isolation)
        self._isolation = isolation
        self._timeout_ms = timeout_ms or cluster.deadline_ms
        self._read_ahead = read_ahead
        self._topic_ids = topic_ids
        self._names = {topic_id_to_text(each): name for name, each in (topic_ids or {}).items()}
        self._on_out_of_range = on_out_of_range
        self._on_truncated = on_truncated
        self._on_failed = on_failed
        self._fetches: dict[int, FetchInFlight] = {}
        # What the next `poll` returns: an error may have come first.
        self._found: list[FetchedBatches] = []
        self._lookup_at_ms = 0

    @property
    def done(self) -> bool:
        """Every range is read to its end, and was returned."""
        return not self._found and all(cursor.done for cursor in self._cursors.values())

    def position(self, tp: TopicPartition) -> int:
        """The next offset that will be read."""
        return self._cursors[tp].position

    def read_from(
        self, tp: TopicPartition, start_offset: int, typed_want: TypedWant | None = None
    ) -> None:
        """Begins to read a partition, or moves to another offset: fetches in flight for it are
        dropped. For reading continuously, without pauses."""
        self.forget(tp)
        self._cursors[tp] = Cursor(tp, start_offset, None, typed_want=typed_want)

    def forget(self, tp: TopicPartition) -> None:
        """Read it no more; what is under way for it is dropped."""
        self._cursors.pop(tp, None)
        self._found = [fetched for fetched in self._found if fetched.tp != tp]

    def pause(self, tp: TopicPartition, *, paused: bool = True) -> None:
        """Fetch nothing more of it; what is under way for it still comes."""
        self._cursors[tp].paused = paused

    def poll(self, timeout_ms: int) -> list[FetchedBatches]:
        """The batches that have arrived; empty when there are none within `timeout_ms`, or all is
        read. Raises OffsetOutOfRangeError with the valid range, LogTruncatedError when records that
        were read are not in the log any more, KafkaError when no retry helps, and
        DeadlineExceededError when a partition has failed for the reader's timeout. What has arrived
        beside an error comes with the next call.
        """
        deadline = Deadline.after(timeout_ms)
        while not self._found:
            self._send_fetches()
            self._receive(min(deadline.left_ms, _LONGEST_WAIT_MS))
            if self._found:
                if self._read_ahead:
                    self._send_fetches()
                break
            self._check_patience()
            if self.done or deadline.passed:
                break
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        """Returns the connections to the pool; those with a fetch in flight are closed."""
        for fetch in self._fetches.values():
            self._cluster.give_back(fetch.connection)
        self._fetches.clear()

    # Requests out.

    def _send_fetches(self) -> None:
        now_ms = monotonic_ms()
        by_leader: dict[int, dict[TopicPartition, Cursor]] = {}
        stale = set()
        for tp, cursor in self._cursors.items():
            if not cursor.wants_fetch(now_ms):
                continue
            leader = self._cluster.known_leader(tp)
            if leader is None or cursor.leader_unsure:
                stale.add(tp.topic)
            elif leader.broker_id not in self._fetches:
                cursor.leader_epoch = leader.epoch
                by_leader.setdefault(leader.broker_id, {})[tp] = cursor
        for broker_id, cursors in by_leader.items():
            self._send(broker_id, cursors)
        if stale:
            self._look_up(stale)

    def _send(self, broker_id: int, cursors: dict[TopicPartition, Cursor]) -> None:
        deadline = Deadline.after(self._cluster.request_timeout_ms + self._max_wait_ms)
        share = max(self._max_bytes // len(cursors), self._max_bytes // 8)
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            partitions=[
                FetchPartition(
                    *tp,
                    cursor.position,
                    cursor.limit(share),
                    cursor.leader_epoch,
                    cursor.last_epoch,
                    want=cursor.typed_want,
                )
                for tp, cursor in cursors.items()
            ],
            isolation_level=self._isolation_level,
        )
        connection = None
        try:
            connection = self._cluster.take(broker_id, deadline)
            check_wants(connection, request)
            spec, request = named_by_id(connection, request, self._topic_ids)
            connection.send(spec, request, deadline)
        except (KafkaError, DeadlineExceededError) as error:
            if connection is not None:
                connection.close()
            self._all_failed(cursors, error)
            return
        by_id, max_wait_ms = spec is FETCH_BY_ID, self._max_wait_ms
        self._fetches[broker_id] = FetchInFlight(
            connection, cursors, deadline, by_id=by_id, max_wait_ms=max_wait_ms
        )
        for cursor in cursors.values():
            cursor.in_flight = True

    def _look_up(self, topics: set[str]) -> None:
        now_ms = monotonic_ms()
        if now_ms < self._lookup_at_ms:
            return
        self._lookup_at_ms = now_ms + _LONGEST_WAIT_MS // 2
        try:
            self._cluster.refresh(topics, Deadline.after(min(LOOKUP_MS, self._timeout_ms)))
        except (KafkaError, DeadlineExceededError) as error:
            self._all_failed(
                {tp: each for tp, each in self._cursors.items() if tp.topic in topics}, error
            )
            return
        self._check_ids(topics)
        for tp, cursor in list(self._cursors.items()):
            if tp.topic not in topics or cursor.done or cursor.in_flight:
                continue
            cursor.leader_unsure = False
            if self._cluster.known_leader(tp) is None:
                cursor.failed(self._cluster.without_leader(tp))
                unknown_ms = cursor.failing_ms()
                if unknown_ms > self._cluster.unknown_topic_wait_ms and not self._cluster.has(tp):
                    self._give_up(cursor, self._cluster.unknown(tp))

    def _check_ids(self, topics: Collection[str]) -> None:
        """Compares the topics' ids after a refresh. What is left of a topic that was deleted and
        created again can't be read any more."""
        if self._topic_ids is None:
            return
        found = self._cluster.view.topics
        for tp, cursor in list(self._cursors.items()):
            if tp.topic not in topics or tp.topic not in found or cursor.done:
                continue
            if found[tp.topic].topic_id != self._topic_ids.get(tp.topic):
                error = f"topic '{tp.topic}' was deleted, and is another one now"
                self._give_up(cursor, KafkaError(error, ErrorCode.UNKNOWN_TOPIC_ID))

    def _give_up(self, cursor: Cursor, error: HeadraceError) -> None:
        """Raises the error, or reads the other partitions on."""
        if self._on_failed is None:
            raise error
        del self._cursors[cursor.tp]
        self._on_failed(cursor.tp, cursor.position, error)

    def _all_failed(self, cursors: Mapping[TopicPartition, Cursor], error: HeadraceError) -> None:
        if isinstance(error, AuthenticationError):
            raise error
        if isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
            raise error
        self._cluster.figures.fetch_errors += len(cursors)
        for cursor in cursors.values():
            cursor.failed(error)

    # Answers in.

    def _receive(self, wait_ms: int) -> None:
        """Raises the first error, when all answers that have arrived are taken."""
        if not self._fetches:
            if not self.done:
                sleep_ms(min(wait_ms, self._next_retry_ms()))
            return
        failure: HeadraceError | None = None
        by_socket = {fetch.connection.socket: id_ for id_, fetch in self._fetches.items()}
        for socket in wait_readable(by_socket, wait_ms):
            try:
                self._answered(by_socket[socket])
            except HeadraceError as raised:
                failure = failure or raised
        if failure is not None:
            raise failure
        for broker_id, fetch in list(self._fetches.items()):
            if fetch.deadline.passed:
                self._lost(broker_id, DeadlineExceededError(f"{fetch.connection.name}: no answer"))
            elif monotonic_ms() >= fetch.check_at_ms:
                fetch.check_at_ms = monotonic_ms() + SILENT_CHECK_MS
                if self._cluster.has_moved(fetch.cursors, broker_id, fetch.connection):
                    error = DeadlineExceededError(f"{fetch.connection.name}: it does not answer")
                    self._lost(broker_id, error)

    def _next_retry_ms(self) -> int:
        now_ms = monotonic_ms()
        waits = [
            each.retry_at_ms - now_ms
            for each in self._cursors.values()
            if not each.done and not each.paused
        ]
        return max(1, min(waits, default=_LONGEST_WAIT_MS))

    def _answered(self, broker_id: int) -> None:
        fetch = self._fetches[broker_id]
        try:
            response: FetchResponse = fetch.connection.receive(fetch.deadline)
        except (KafkaError, DeadlineExceededError) as error:
            self._lost(broker_id, error)
            return
        del self._fetches[broker_id]
        for cursor in fetch.cursors.values():
            cursor.in_flight = False
        self._cluster.give_back(fetch.connection)
        self._cluster.figures.fetches += 1
        self._cluster.figures.fetch_ns.observe(time.perf_counter_ns() - fetch.begun_ns)
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._all_failed(fetch.cursors, KafkaError(f"fetch: {code.meaning}", code))
        if not fetch.by_id and self._topic_ids is not None:
            self._check_ids_behind(response)
        failure: HeadraceError | None = None
        for answer in response.partitions:
            if fetch.by_id:
                answer = answer._replace(topic=self._names.get(answer.topic, ""))
            asked = fetch.cursors.pop(TopicPartition(answer.topic, answer.partition), None)
            if asked is None or self._cursors.get(asked.tp) is not asked:
                continue
            try:
                self._take_answer(asked, answer, response.nodes)
            except HeadraceError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _check_ids_behind(self, response: FetchResponse) -> None:
        """Checks a broker that knows topics only by their names. Ids are never reused, so what it
        says is of the topic, and not of a shorter one, if the name has the same id afterwards."""
        topics = {
            each.topic
            for each in response.partitions
            if each.records
            or each.diverging_epoch
            or each.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        }
        if topics:
            self._cluster.refresh(topics)
            self._check_ids(topics)

    def _lost(self, broker_id: int, error: HeadraceError) -> None:
        fetch = self._fetches.pop(broker_id)
        fetch.connection.close()
        self._all_failed(fetch.cursors, error)

    def _take_answer(
        self, cursor: Cursor, answer: FetchPartitionResponse, nodes: Sequence[LeaderNode]
    ) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and self._on_failed is None:
            cursor.failed(self._out_of_range(cursor))
            return
        if code is not ErrorCode.NONE:
            self._cluster.figures.fetch_errors += 1
            error = KafkaError(f"{cursor.tp}: {code.meaning}", code)
            if code.retriable:
                is_told = self._cluster.told_leader(cursor.tp, answer.current_leader, nodes)
                cursor.failed(error, leader_is_known=is_told)
            else:
                self._give_up(cursor, error)
            return
        if answer.diverging_epoch is not None:
            _, end_offset = answer.diverging_epoch
            self._truncated(cursor, end_offset)
            return
        start_offset = cursor.position
        assert answer.records is None or isinstance(answer.records, memoryview)
        try:
            records = cursor.advance(answer.records, answer.high_watermark)
        except CorruptRecordError as error:
            self._give_up(cursor, error)
            return
        if records is None:
            return
        self._cluster.figures.read(cursor.position - start_offset, len(records))
        fetched = FetchedBatches(
            cursor.tp,
            records,
            start_offset,
            cursor.position,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            tuple(answer.aborted_transactions or ()),
            cursor.last_epoch,
            cursor.typed_want,
        )
        self._found.append(fetched)

    def _truncated(self, cursor: Cursor, end_offset: int) -> None:
        """The leader has had other records than were read since `end_offset`."""
        tp, position = cursor.tp, cursor.position
        truncation_offset = max(0, min(end_offset, position))
        text = (
            f"{tp}: the log was truncated: it was read up to offset {position}, and from offset "
            f"{truncation_offset} on it has other records now (an unclean election?)"
        )
        if self._on_truncated is None:
            self._give_up(
                cursor,
                LogTruncatedError(text, offset=position, truncation_offset=truncation_offset),
            )
            return
        self.read_from(tp, self._on_truncated(tp, position, truncation_offset), cursor.typed_want)
        self.pause(tp, paused=cursor.paused)

    def _out_of_range(self, cursor: Cursor) -> KafkaError:
        """Raise it where the leader still says so; a leader that has just been elected may not know
        its end yet."""
        tp = cursor.tp
        start_offset = self._cluster.list_offsets({tp: EARLIEST})[tp]
        end_offset = self._cluster.list_offsets({tp: LATEST}, isolation=self._isolation)[tp]
        text = (
            f"{tp}: offset {cursor.position} is out of range, the log has offsets "
            f"{start_offset} to {end_offset} (exclusive)"
        )
        if start_offset <= cursor.position <= end_offset:
            return KafkaError(text, ErrorCode.OFFSET_NOT_AVAILABLE)
        if self._on_out_of_range is not None:
            offset = self._on_out_of_range(tp, cursor.position, start_offset, end_offset)
            self.read_from(tp, offset, cursor.typed_want)
            self.pause(tp, paused=cursor.paused)
            return KafkaError(text, ErrorCode.OFFSET_NOT_AVAILABLE)
        raise OffsetOutOfRangeError(text, log_start_offset=start_offset, log_end_offset=end_offset)

    def _check_patience(self) -> None:
        for cursor in list(self._cursors.values()):
            if (reason := cursor.stuck(self._timeout_ms)) is not None:
                error = DeadlineExceededError(f"{reason} (waited {self._timeout_ms} ms)")
                self._give_up(cursor, error)
