"""Follows `_schemas` as a consumer of committed records, from its leader, wherever that is.

    from the log's start -> fetch -> a thread decodes -> applied, some records a turn -> fetch ...
    at the end           -> a pause -> fetch ...; where nobody has asked for long, not any more
    a question           -> where does the log end now? -> read up to there -> answered

Only the records make the state (`core/schemas/registry`), and those of a topic that was made anew,
cut or shortened make another one, of another generation. Questions of many share a look at the end,
and there is none within GAP_MS of the one before: so whoever asks a thousand times costs the leader
no more than who asks once. Source: R-SR2.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from uuid import UUID

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.schemas.fetched_records import FetchedRecords, fetched_records
from storage_engine.broker.unexpected import FAILED, guarded
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import topic_id_to_text
from storage_engine.core.ports import Background, Clock, Endpoint, Scheduler, Timer, TransportError
from storage_engine.core.schemas.registry.state import RegistryState
from storage_engine.net.client_log import ClientLog
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import (
    FIRST_WITH_TOPIC_IDS,
    READ_COMMITTED,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.apis.list_offsets import API as LIST_OFFSETS
from storage_engine.protocol.apis.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from storage_engine.protocol.transport import Transport

CHANNEL = "schemas"
FETCH_VERSION = FIRST_WITH_TOPIC_IDS
"""By the topic's id: metadata may not know yet that there is another topic of the name."""
LIST_OFFSETS_VERSION = 5
"""The first version in which a new leader says that it does not know the end yet."""

ANSWER_BYTES = 256 << 10
APPLIED_AT_ONCE = 100
"""The most records that are applied in a turn of the loop: a millisecond or two."""

REQUEST_TIMEOUT_MS = 5_000
PAUSE_MS = 1_000
RETRY_MS = 200
GAP_MS = 100
"""The least time between two looks at the log's end."""

ANSWER_WAIT_MS = 3_000
"""The longest that a question waits."""

UNUSED_MS = 60_000
"""After this time without a question the log is not fetched any more, until the next one."""

MOST_BYTES = 128 << 20
"""The most memory of the state. 100,000 schemas of a thousand characters are more than that."""

_NOT_READ = "it was not read yet"

log = ClientLog(__name__)


class _Question:
    """`end_offset`: the log is to be read up to there; None until that is known."""

    __slots__ = ("end_offset", "then", "timer")

    def __init__(self, then: Callable[[bool], None]) -> None:
        self.then = then
        self.timer: Timer | None = None
        self.end_offset: int | None = None


class SchemasLog:
    """On the event loop alone."""

    def __init__(
        self,
        topic: str,
        *,
        metadata: MetadataCache,
        transport: Transport,
        scheduler: Scheduler,
        clock: Clock,
        background: Background,
    ) -> None:
        self.topic = topic
        self.state = RegistryState()
        self.generation = 0
        """Ids of one generation say nothing about those of another."""
        self.changes = 0
        """Grows with each change of the state."""
        self.is_loaded = False
        """Whether all that was there at the start has been read."""
        self.is_too_large = False
        self.problem = _NOT_READ
        """Why it can't be read now."""
        self.looks = 0
        """How often the leader was asked for the end."""
        self._metadata = metadata
        self._transport = transport
        self._scheduler = scheduler
        self._clock = clock
        self._background = background
        self._topic_id: UUID | None = None
        self._position = 0
        self._last_epoch = -1
        self._questions: dict[_Question, None] = {}
        self._looked_ms: int | None = None
        self._used_ms = 0
        self._under_way = False
        """While an answer is waited for, or applied."""
        self._timer: Timer | None = None
        self._closed = False

    @property
    def next_offset(self) -> int:
        """The offset up to which the log is read, exclusive."""
        return self._position

    # --- questions ---

    def use(self) -> None:
        """Follow the log, if it is not followed."""
        self._used_ms = self._clock.monotonic_ms()
        if self._timer is None and not self._under_way:
            self._schedule(0)

    def when_read(self, then: Callable[[bool], None]) -> None:
        """Call `then` once: with True when all is read that is committed now, with False when that
        takes more than ANSWER_WAIT_MS."""
        question = _Question(then)
        question.timer = self._scheduler.call_later(
            ANSWER_WAIT_MS, partial(self._answer, question, is_read=False)
        )
        self._questions[question] = None
        self._used_ms = self._clock.monotonic_ms()
        self._schedule(0)

    def _answer(self, question: _Question, *, is_read: bool) -> None:
        self._questions.pop(question, None)
        if question.timer is not None:
            question.timer.cancel()
        guarded("a question about schemas", question.then, is_read)

    def _answer_who_may(self) -> None:
        for question in list(self._questions):
            if question.end_offset is not None and question.end_offset <= self._position:
                self._note_loaded()
                self._answer(question, is_read=True)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for question in list(self._questions):
            self._answer(question, is_read=False)

    # --- the loop ---

    def _schedule(self, delay_ms: int) -> None:
        if self._under_way or self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.call_later(delay_ms, self._run)

    def _run(self) -> None:
        self._timer = None
        if guarded("schemas", self._turn) is FAILED:
            self._under_way = False
            self._schedule(RETRY_MS)

    def _turn(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self._questions and now_ms - self._used_ms > UNUSED_MS:
            return
        leader = self._leader()
        if leader is None:
            self._schedule(RETRY_MS)
        elif self.is_too_large:
            self._schedule(PAUSE_MS)
        elif any(question.end_offset is None for question in self._questions):
            ready_ms = 0 if self._looked_ms is None else self._looked_ms + GAP_MS
            if ready_ms > now_ms:
                self._schedule(ready_ms - now_ms)
                return
            self._looked_ms = now_ms
            self._look_for_the_end(leader)
        else:
            self._fetch(leader)

    def _leader(self) -> Endpoint | None:
        """The leader, of a topic that is perhaps another one than before."""
        states = self._metadata.partitions(self.topic)
        state = None if states is None else states.get(0)
        topic_id = self._metadata.topic_id(self.topic)
        if state is None or topic_id is None:
            self.problem = "there is no such topic"
            return None
        if topic_id != self._topic_id:
            if self._topic_id is not None:
                self._begin_anew("the topic was made anew")
            self._topic_id = topic_id
        broker = self._metadata.brokers.get(state.leader)
        if broker is None:
            self.problem = "it has no leader"
            return None
        return Endpoint(broker_id=broker.broker_id, host=broker.host, port=broker.port)

    def _begin_anew(self, reason: str, start_offset: int = 0) -> None:
        log.warning(self.topic, "%s is read anew: %s", self.topic, reason)
        self.state = RegistryState()
        self.generation += 1
        self.changes += 1
        self.is_loaded = self.is_too_large = False
        self._position, self._last_epoch = start_offset, -1
        for question in self._questions:
            question.end_offset = None

    def _look_for_the_end(self, leader: Endpoint) -> None:
        self._under_way = True
        self.looks += 1
        asked = [question for question in self._questions if question.end_offset is None]
        self._transport.request(
            leader,
            CHANNEL,
            LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            ListOffsetsRequest(
                [ListOffsetsPartition(self.topic, 0, LATEST_TIMESTAMP)],
                isolation_level=READ_COMMITTED,
            ),
            timeout_ms=REQUEST_TIMEOUT_MS,
            on_reply=partial(self._take_end, asked),
        )

    def _take_end(
        self, asked: list[_Question], reply: ListOffsetsResponse | TransportError
    ) -> None:
        self._under_way = False
        if isinstance(reply, TransportError):
            self._failed(reply.reason)
            return
        answer = reply.partitions[0]
        if answer.error_code:
            self._failed(ErrorCode.of(answer.error_code).meaning)
            return
        for question in asked:
            question.end_offset = answer.offset
        self._answer_who_may()
        self._schedule(0)

    def _failed(self, reason: str) -> None:
        self.problem = reason
        log.info(self.topic, "%s can't be read: %s", self.topic, reason)
        self._schedule(RETRY_MS)

    # --- fetches ---

    def _fetch(self, leader: Endpoint) -> None:
        assert self._topic_id is not None
        self._under_way = True
        self._transport.request(
            leader,
            CHANNEL,
            FETCH,
            FETCH_VERSION,
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=ANSWER_BYTES,
                partitions=[
                    FetchPartition(
                        topic_id_to_text(self._topic_id),
                        0,
                        self._position,
                        ANSWER_BYTES,
                        last_fetched_epoch=self._last_epoch,
                    )
                ],
                isolation_level=READ_COMMITTED,
            ),
            timeout_ms=REQUEST_TIMEOUT_MS,
            on_reply=self._take_records,
        )

    def _take_records(self, reply: FetchResponse | TransportError) -> None:
        self._under_way = False
        if isinstance(reply, TransportError):
            self._failed(reply.reason)
            return
        if reply.error_code or not reply.partitions:
            self._failed(ErrorCode.of(reply.error_code).meaning)
            return
        answer = reply.partitions[0]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._begin_anew("its log does not have the next offset", answer.log_start_offset)
            self._schedule(RETRY_MS)
        elif answer.error_code:
            self._failed(ErrorCode.of(answer.error_code).meaning)
        elif answer.diverging_epoch is not None:
            self._begin_anew("its leader has lost records that were read")
            self._schedule(0)
        elif isinstance(answer.records, memoryview) and len(answer.records):
            self._decode(answer, memoryview(bytes(answer.records)))
        elif self._position < answer.last_stable_offset:
            self._failed("its leader sends nothing yet")
        else:
            self._at_end()

    def _decode(self, answer: FetchPartitionResponse, records: memoryview) -> None:
        self._under_way = True
        self._background.submit(
            partial(fetched_records, records, answer.aborted_transactions or (), self._position),
            self._decoded,
            self._not_decoded,
        )

    def _not_decoded(self, error: Exception) -> None:
        self._under_way = False
        self._failed(str(error))

    def _decoded(self, found: FetchedRecords) -> None:
        if found.damaged:
            self.state.skipped += found.damaged
            log.warning(
                self.topic,
                "%d batches of %s before offset %d are damaged, and skipped",
                found.damaged,
                self.topic,
                found.next_offset,
            )
        self._apply(deque(found.records), found)

    def _apply(self, left: deque[tuple[bytes | None, bytes | None]], found: FetchedRecords) -> None:
        for _ in range(min(APPLIED_AT_ONCE, len(left))):
            reason = guarded("a record of schemas", self.state.apply, *left.popleft())
            if isinstance(reason, str):
                log.info(self.topic, "a record of %s is skipped: %s", self.topic, reason)
        self.changes += 1
        if self.state.memory_bytes > MOST_BYTES:
            self._give_up()
        elif left and not self._closed:
            self._scheduler.call_soon(partial(self._apply, left, found))
        else:
            self._under_way = False
            if found.next_offset > self._position:
                self._position, self._last_epoch = found.next_offset, found.last_epoch
            self._answer_who_may()
            self._schedule(0)

    def _give_up(self) -> None:
        self._begin_anew("it has become too large for the memory of a broker")
        self.is_too_large, self._under_way = True, False
        log.error(
            self.topic,
            "%s has more than %d MiB of schemas, which a broker does not keep: nothing is "
            "converted from or to Avro here",
            self.topic,
            MOST_BYTES >> 20,
        )
        for question in list(self._questions):
            self._answer(question, is_read=False)
        self._schedule(PAUSE_MS)

    def _at_end(self) -> None:
        """All that was committed at the fetch is applied."""
        self._note_loaded()
        self._answer_who_may()
        self._schedule(0 if self._questions else PAUSE_MS)

    def _note_loaded(self) -> None:
        if self.is_loaded:
            return
        self.is_loaded = True
        self.changes += 1
        log.info(
            self.topic,
            "schemas read topic=%s end=%d skipped=%d",
            self.topic,
            self._position,
            self.state.skipped,
        )
