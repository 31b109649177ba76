"""The one fetcher of record batches from the leaders of partitions, which all readers use.

It returns whole batches, as bytes, each once and in order. The next fetch is on its way before the
caller gets the answer to the last one, and where the link has a delay several of one range at
guessed offsets; a leader that moves or dies only delays. A leader that never had the records read
before is noticed, because each fetch in its turn carries the epoch of the last batch.

    poll -> Cursor (one a partition): what to ask -> LeaderFetches (one a leader): in flight
                 <- whole batches, position <-        answers in order

Source: R-CLI2, R-CLI5; KIP-227 is not used, KIP-320 and KIP-595 for leader epochs.
"""

import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from uuid import UUID

from storage_engine.client.cluster import EARLIEST, LATEST, LOOKUP_MS, Cluster
from storage_engine.client.fetching.fetch_cursor import Ask, Cursor
from storage_engine.client.fetching.fetch_window import MOST_IN_FLIGHT, FetchWindow
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.fetching.leader_fetches import LeaderFetches, level_of
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
from storage_engine.core.ids import TopicPartition
from storage_engine.net.blocking import wait_readable
from storage_engine.net.deadline import Deadline, monotonic_ms, sleep_ms
from storage_engine.protocol.apis.current_leaders import LeaderNode
from storage_engine.protocol.apis.fetch import FetchPartitionResponse, FetchResponse
from storage_engine.protocol.typed.projection import TypedWant

MAX_WAIT_MS = 500
"""`fetch.max.wait.ms`: how long a leader holds a fetch when it has nothing new."""

_LONGEST_WAIT_MS = 100
"""The longest wait for answers before due retries are sent."""

OnOutOfRange = Callable[[TopicPartition, int, int, int], int]
"""Called with a partition, the requested offset, and the half-open range of offsets that exist."""

OnTruncated = Callable[[TopicPartition, int, int], int]
"""Called with a partition, the requested offset, and the first offset at which the log has other
records than were read."""

OnFailed = Callable[[TopicPartition, int, HeadraceError], None]
"""Called with a partition that is given up, the offset up to which it was read, and why."""


class BatchFetcher:
    """Reads partitions, each from its start to its end (None: for ever). The caller has to cut the
    edges and to expect gaps: the first batch may begin before, the last end behind."""

    def __init__(
        self,
        cluster: Cluster,
        ranges: Mapping[TopicPartition, tuple[int, int | None]],
        *,
        max_bytes: int = FETCH_BYTES,
        max_wait_ms: int = MAX_WAIT_MS,
        isolation: str = "read_uncommitted",
        timeout_ms: int | None = None,
        most_in_flight: int = MOST_IN_FLIGHT,
        on_out_of_range: OnOutOfRange | None = None,
        on_truncated: OnTruncated | None = None,
        topic_ids: Mapping[str, UUID] | None = None,
        on_failed: OnFailed | None = None,
        guessed_offset_bytes: int = 0,
        typed_wants: Mapping[str, TypedWant] | None = None,
        only_by_id: bool = False,
    ) -> None:
        """`timeout_ms`: how long a partition may fail, or have nothing below its end, before that
        is an error (default: the cluster's deadline). `most_in_flight`: fetches of a leader besides
        what the caller works on; 0: one is sent only when it is polled for. Of one range that ends,
        as many are as the link needs, of anything else one. `on_out_of_range` and `on_truncated`
        say where to go on instead, or raise. `topic_ids`, by name: only these very topics are read,
        so that one that is created again is an error of `poll` (KafkaError UNKNOWN_TOPIC_ID). None:
        whichever has the name. `on_failed`: gets the partitions that `poll` would raise an error
        for, and the others are read on; an offset out of range is not looked into then.
        `guessed_offset_bytes`: a first fetch asks for so much an offset up to the partition's end,
        and later ones for what the answers had (0: the first for a full share). `typed_wants`: the
        columns and rows to fetch of topics with a schema, by name; of others, records.
        `only_by_id`: brokers that know no ids are an error; others compare epochs, too."""
        most_in_flight = min(most_in_flight, MOST_IN_FLIGHT if len(ranges) == 1 else 1)
        self._cluster = cluster
        self._cursors = {
            tp: Cursor(
                tp,
                start_offset,
                FetchWindow(
                    end_offset,
                    max_bytes=max_bytes,
                    most_in_flight=most_in_flight,
                    offset_bytes=guessed_offset_bytes,
                ),
                typed_want=(typed_wants or {}).get(tp.topic),
            )
            for tp, (start_offset, end_offset) in ranges.items()
        }
        self._max_bytes, self._max_wait_ms = max_bytes, max_wait_ms
        self._isolation, self._isolation_level = isolation, level_of(isolation)
        self._timeout_ms = timeout_ms or cluster.deadline_ms
        self._most_in_flight = most_in_flight
        self._topic_ids = None if topic_ids is None else dict(topic_ids)
        self._only_by_id = only_by_id
        self._on_out_of_range, self._on_truncated = on_out_of_range, on_truncated
        self._on_failed = on_failed
        self._leaders: dict[int, LeaderFetches] = {}
        # The batches that the next `poll` returns: an error may have come first.
        self._found: list[FetchedBatches] = []
        self._lookup_at_ms = 0
        # A call is at work, or was interrupted.
        self._is_torn = False

    @property
    def done(self) -> bool:
        """Whether every range is read to its end and was returned."""
        return not self._found and all(cursor.done for cursor in self._cursors.values())

    def position(self, tp: TopicPartition) -> int:
        """The next offset that will be read."""
        return self._cursors[tp].position

    def read_from(
        self,
        tp: TopicPartition,
        start_offset: int,
        typed_want: TypedWant | None = None,
        *,
        last_epoch: int = -1,
        topic_id: UUID | None = None,
    ) -> None:
        """Begins to read a partition, without end, or moves to another offset: fetches in flight
        are dropped. `last_epoch`: of the batch before; `topic_id`: for a reader with ids."""
        self.forget(tp)
        if topic_id is not None and self._topic_ids is not None:
            self._topic_ids[tp.topic] = topic_id
        window = FetchWindow(None, max_bytes=self._max_bytes)
        cursor = Cursor(tp, start_offset, window, typed_want=typed_want, last_epoch=last_epoch)
        self._cursors[tp] = cursor

    def forget(self, tp: TopicPartition) -> None:
        """Stop reading a partition; its fetches under way are dropped."""
        self._cursors.pop(tp, None)
        self._found = [fetched for fetched in self._found if fetched.tp != tp]

    def pause(self, tp: TopicPartition, *, paused: bool = True) -> None:
        """Pause or resume a partition; its fetches under way are still returned."""
        self._cursors[tp].paused = paused

    def poll(self, timeout_ms: int) -> list[FetchedBatches]:
        """The batches that have arrived; empty when there are none within `timeout_ms`, or all is
        read. Raises OffsetOutOfRangeError with the valid range, LogTruncatedError when records that
        were read are not in the log any more, KafkaError when no retry helps, and
        DeadlineExceededError when a partition has failed for the reader's timeout. What has arrived
        beside an error is returned by the next call.
        """
        if self._is_torn:
            # An exception of a signal handler can leave the fetches under way in any state.
            self.close()
            for cursor in self._cursors.values():
                cursor.asks.clear()
        self._is_torn = True
        try:
            self._poll(Deadline.after(timeout_ms))
        except HeadraceError:
            self._is_torn = False
            raise
        self._is_torn = False
        found, self._found = self._found, []
        return found

    def _poll(self, deadline: Deadline) -> None:
        if self._most_in_flight > 1:
            now_s = time.perf_counter()
            for cursor in self._cursors.values():
                cursor.caller_is_back(now_s)
        while not self._found:
            self._send_fetches()
            self._receive(min(deadline.left_ms, _LONGEST_WAIT_MS))
            if self._found:
                if self._most_in_flight:
                    self._send_fetches()
                if self._most_in_flight > 1:
                    self._send_ahead()
                break
            self._check_patience()
            if self.done or deadline.passed:
                break
        for broker_id, leader in list(self._leaders.items()):
            if not leader.sent:
                self._cluster.give_back(self._leaders.pop(broker_id).connection)

    def read(self, poll_ms: int = 1_000) -> Generator[FetchedBatches, None, None]:
        """Yield the rest of the ranges; `close` at the end, or when the generator is closed."""
        try:
            while not self.done:
                yield from self.poll(poll_ms)
        finally:
            self.close()

    def close(self) -> None:
        """Returns the connections to the pool; those with a fetch in flight are closed."""
        while self._leaders:
            self._cluster.give_back(self._leaders.popitem()[1].connection)

    # Requests out.

    def _send_fetches(self) -> None:
        now_ms = monotonic_ms()
        by_leader: dict[int, list[Ask]] = {}
        busy = {broker_id for broker_id, each in self._leaders.items() if each.sent}
        stale = set()
        for tp, cursor in self._cursors.items():
            if not (cursor.is_missing and cursor.may_fetch(now_ms)):
                continue
            leader = self._cluster.known_leader(tp)
            if cursor.asks and (leader is None or leader != cursor.agreed):
                # Answers that came before their turn may be of another history.
                cursor.asks.clear()
            if leader is None or cursor.leader_unsure:
                stale.add(tp.topic)
            elif cursor.asks or leader.broker_id not in busy:
                by_leader.setdefault(leader.broker_id, []).append(cursor.ask_in_turn(leader))
        for broker_id, asks in by_leader.items():
            self._send(broker_id, asks)
        if stale:
            self._look_up(stale)

    def _send_ahead(self) -> None:
        now_ms = monotonic_ms()
        for tp, cursor in self._cursors.items():
            leader = self._cluster.known_leader(tp)
            while leader is not None and cursor.may_fetch(now_ms):
                ask = cursor.ask_ahead(leader)
                if ask is None:
                    break
                self._send(leader.broker_id, [ask])

    def _send(self, broker_id: int, asks: Sequence[Ask]) -> None:
        try:
            leader = self._leaders.get(broker_id)
            if leader is None:
                leader = self._leaders[broker_id] = LeaderFetches(
                    self._cluster,
                    broker_id,
                    max_bytes=self._max_bytes,
                    max_wait_ms=self._max_wait_ms,
                    isolation_level=self._isolation_level,
                    topic_ids=self._topic_ids,
                    only_by_id=self._only_by_id,
                )
            leader.send(asks)
        except (KafkaError, DeadlineExceededError) as error:
            self._lost(broker_id, error, asks)

    def _look_up(self, topics: set[str]) -> None:
        now_ms = monotonic_ms()
        if now_ms < self._lookup_at_ms:
            return
        self._lookup_at_ms = now_ms + _LONGEST_WAIT_MS // 2
        try:
            self._cluster.refresh(topics, Deadline.after(min(LOOKUP_MS, self._timeout_ms)))
        except (KafkaError, DeadlineExceededError) as error:
            self._all_failed(
                [each for each in self._cursors.values() if each.tp.topic in topics], error
            )
            return
        self._check_ids(topics)
        for tp, cursor in list(self._cursors.items()):
            if tp.topic not in topics or cursor.done or cursor.asks:
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
        """Raise the error, or hand it to `on_failed` and read the other partitions on."""
        if self._on_failed is None:
            raise error
        del self._cursors[cursor.tp]
        self._on_failed(cursor.tp, cursor.position, error)

    def _all_failed(self, cursors: Collection[Cursor], error: HeadraceError) -> None:
        is_final = isinstance(error, AuthenticationError) or (
            isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION
        )
        self._cluster.figures.fetch_errors += len(cursors)
        for cursor in cursors:
            cursor.failed(error)
        if is_final:
            raise error

    # Answers in.

    def _receive(self, wait_ms: int) -> None:
        """Process all answers that have arrived, then raise the first error."""
        busy = {each.connection: id_ for id_, each in self._leaders.items() if each.sent}
        if not busy:
            if not self.done:
                left = [each.retry_at_ms for each in self._cursors.values() if each.is_wanted]
                retry_ms = min(left) - monotonic_ms() if left else wait_ms
                sleep_ms(min(wait_ms, max(1, retry_ms)))
            return
        failure: HeadraceError | None = None
        for connection in wait_readable(busy, wait_ms):
            try:
                self._answered(busy.pop(connection))
            except HeadraceError as raised:
                failure = failure or raised
        if failure is not None:
            raise failure
        for broker_id in busy.values():
            if (problem := self._leaders[broker_id].problem(self._cluster)) is not None:
                self._lost(broker_id, DeadlineExceededError(problem))

    def _answered(self, broker_id: int) -> None:
        leader = self._leaders[broker_id]
        came_s = time.perf_counter()
        try:
            fetch, response = leader.receive()
        except (KafkaError, DeadlineExceededError) as error:
            self._lost(broker_id, error)
            return
        self._cluster.figures.fetches += 1
        self._cluster.figures.fetch_ns.observe(time.perf_counter_ns() - fetch.begun_ns)
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            refused = KafkaError(f"fetch: {code.meaning}", code)
            self._all_failed(self._waiting_for(fetch.parts.values()), refused)
        failure: HeadraceError | None = None
        try:
            if self._topic_ids is not None and not leader.names_by_id:
                self._check_ids_behind(response)
            for answer in response.partitions:
                ask = fetch.parts.get(TopicPartition(answer.topic, answer.partition))
                if ask is None or not self._is_awaited(ask):
                    continue
                try:
                    self._take_answer(ask, answer, response.nodes, came_s)
                except HeadraceError as raised:
                    failure = failure or raised
        finally:
            for ask in fetch.parts.values():
                if ask.answer is None:
                    ask.cursor.drop_from(ask)
        if failure is not None:
            raise failure

    def _waiting_for(self, asks: Iterable[Ask]) -> list[Cursor]:
        """Return the cursors that are still read and wait for one of these fetches."""
        cursors = {ask.cursor.tp: ask.cursor for ask in asks if self._is_awaited(ask)}
        return list(cursors.values())

    def _is_awaited(self, ask: Ask) -> bool:
        return ask in ask.cursor.asks and self._cursors.get(ask.cursor.tp) is ask.cursor

    def _check_ids_behind(self, response: FetchResponse) -> None:
        """Check ids after an answer of a broker that knows topics by their names only. Ids are not
        reused, so if the name has the same id afterwards, the answer is about the same topic."""
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

    def _lost(self, broker_id: int, error: HeadraceError, unsent: Iterable[Ask] = ()) -> None:
        """Retry after a lost connection. `unsent`: the parts of a fetch that was not sent."""
        cursors = {ask.cursor.tp: ask.cursor for ask in unsent}
        leader = self._leaders.pop(broker_id, None)
        if leader is not None:
            leader.connection.close()
            for fetch in leader.sent:
                cursors |= {each.tp: each for each in self._waiting_for(fetch.parts.values())}
        self._all_failed(cursors.values(), error)

    def _take_answer(
        self,
        ask: Ask,
        answer: FetchPartitionResponse,
        nodes: Sequence[LeaderNode],
        came_s: float,
    ) -> None:
        cursor = ask.cursor
        code = ErrorCode.of(answer.error_code)
        is_good = code is ErrorCode.NONE and answer.diverging_epoch is None
        if ask.start_offset > cursor.position:
            # A guess that has failed says nothing of what lies before it.
            ask.answer = answer if is_good else None
        elif is_good:
            cursor.came(ask, came_s, len(answer.records or b""))
            self._take_records(ask, answer)
        elif code is ErrorCode.NONE:
            assert answer.diverging_epoch is not None
            self._truncated(cursor, answer.diverging_epoch[1])
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE and self._on_failed is None:
            cursor.failed(self._out_of_range(cursor))
        else:
            self._cluster.figures.fetch_errors += 1
            error = KafkaError(f"{cursor.tp}: {code.meaning}", code)
            if code.retriable:
                is_told = self._cluster.told_leader(cursor.tp, answer.current_leader, nodes)
                cursor.failed(error, leader_is_known=is_told)
            else:
                self._give_up(cursor, error)

    def _take_records(self, ask: Ask, answer: FetchPartitionResponse) -> None:
        """Process an answer in its turn, and the answers behind it that have come before."""
        cursor = ask.cursor
        while True:
            try:
                fetched = cursor.advance(ask, answer)
            except CorruptRecordError as error:
                self._give_up(cursor, error)
                return
            if fetched is not None:
                count = fetched.next_offset - fetched.start_offset
                self._cluster.figures.read(count, len(fetched.records))
                self._found.append(fetched)
            if cursor.is_missing or cursor.asks[0].answer is None:
                return
            ask, answer = cursor.asks[0], cursor.asks[0].answer

    def _truncated(self, cursor: Cursor, end_offset: int) -> None:
        """Handle a log whose records from `end_offset` on differ from the records read."""
        tp, position = cursor.tp, cursor.position
        truncation_offset = max(0, min(end_offset, position))
        text = (
            f"{tp}: the log was truncated: it was read up to offset {position}, and from offset "
            f"{truncation_offset} on it has other records now (an unclean election?)"
        )
        if self._on_truncated is None:
            error = LogTruncatedError(text, offset=position, truncation_offset=truncation_offset)
            self._give_up(cursor, error)
            return
        self._go_on_at(cursor, self._on_truncated(tp, position, truncation_offset))

    def _out_of_range(self, cursor: Cursor) -> KafkaError:
        """Raise an error where the leader's log really lacks the offset, else return a retriable
        one: a leader that has just been elected may not know its end yet."""
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
            self._go_on_at(cursor, offset)
            return KafkaError(text, ErrorCode.OFFSET_NOT_AVAILABLE)
        raise OffsetOutOfRangeError(text, log_start_offset=start_offset, log_end_offset=end_offset)

    def _go_on_at(self, cursor: Cursor, offset: int) -> None:
        self.read_from(cursor.tp, offset, cursor.typed_want)
        self.pause(cursor.tp, paused=cursor.paused)

    def _check_patience(self) -> None:
        for cursor in list(self._cursors.values()):
            if (reason := cursor.stuck(self._timeout_ms)) is not None:
                error = DeadlineExceededError(f"{reason} (waited {self._timeout_ms} ms)")
                self._give_up(cursor, error)
