"""Runs one coordinator: a partition of its log under one leader epoch. The decisions of the core
are carried out in their order, and only by the leader that the core was restored for.

    loading -> running -> ended          loading: requests wait for a while, from then on they get
                                         COORDINATOR_LOAD_IN_PROGRESS
                                         ended: NOT_COORDINATOR, also to all that wait

Before each step that may write, the runner makes sure that this broker leads, and that enough
replicas are in sync. So only the disk can refuse an append; this ends the runner, and the next one
reads the log. Records that take long to encode are encoded in the background, and the next step
waits for them. Events that are not sent again (written markers, replicated records) wait until
a step is possible. An event that may not write needs no replicas, and waits only for the load. The
event of a request is made when it is stepped, however long it has waited: there its handler checks
again what may have changed since it came.

A broker that leads on under the next leader epoch goes on with its state: no other broker can have
written to the log. After an unknown epoch in between another may have, and the log is read again.
Source: KIP-98, R-SPARK2.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic

from storage_engine.broker.coordinators.state_load import ContentT, StateCodec
from storage_engine.broker.coordinators.state_machine import (
    AnswerT,
    Carrier,
    Core,
    Effects,
    EffectT,
    EventT,
    OnAnswer,
    PendingAnswers,
    RunnerPorts,
    now,
)
from storage_engine.broker.coordinators.state_restore import StateRestore
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.unexpected import FAILED, guarded, report
from storage_engine.core.coordinator_log import (
    Answer,
    AnswerEach,
    AppendRecord,
    CountAppended,
    EntryT,
    Moment,
    Replicated,
    TickAgain,
)
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition

log = logging.getLogger(__name__)

RETRY_MS = 100
"""The delay before an event that could not be stepped is retried."""

LOAD_WAIT_MS = 5_000
"""How long after the election requests wait for the load instead of being refused. librdkafka
retries only twice within 300 ms, and the first load of a process imports Arrow."""

BATCH_HEADER_BYTES = 1024
"""The bytes reserved for a batch's header, with some to spare."""

TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

INLINE_RECORDS = 200
"""The most records of a step that are encoded in its turn, some 10 µs each."""

NEEDS_REPLICAS = -1
NEEDS_LEADERSHIP = 1
"""The `acks` of a step that needs no other replica."""


EventOf = Callable[[int], EventT | ErrorCode]
"""Makes the event of a request, given the request's number, or returns an ErrorCode when the
request is no longer possible. Called in the turn of the event's step, and sometimes also before."""


@dataclass(frozen=True, slots=True)
class _Due(Generic[EventT]):
    """An event in the queue."""

    number: int
    """The number of the request; 0: no request waits for an answer."""
    make: Callable[[], EventT | Replicated | ErrorCode]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKind(Generic[EventT, AnswerT, EffectT, EntryT, ContentT]):
    """The differences between coordinators of transactions and those of groups."""

    name: str
    """The name of the kind in log lines."""
    topic: str
    load_codec: Callable[[], StateCodec[EntryT, ContentT]]
    """Loads the codec; called in the background."""
    new_core: Callable[[int], Core[EventT, AnswerT, EffectT, EntryT, ContentT]]
    """Makes the state machine for a log with this `max.message.bytes`."""
    new_carrier: Callable[
        ["CoordinatorRunner[EventT, AnswerT, EffectT, EntryT, ContentT]"], Carrier[EffectT]
    ]
    tick: Callable[[Moment], EventT]
    """Makes the event of the periodic work."""
    writes: Callable[[EventT | Replicated], bool]
    """Whether an event's step may append."""
    without_append: Callable[[EventT | Replicated], EventT | None]
    """Makes the event to step in its place while too few replicas are in sync, which appends
    nothing; None for one that has to wait for them."""
    answer_type: type[AnswerT]
    refusal: Callable[[int, ErrorCode], AnswerT]
    """Makes the answer to a request that failed."""


class CoordinatorRunner(Generic[EventT, AnswerT, EffectT, EntryT, ContentT]):
    """Runs a coordinator. Waits on its partition (`purgatory.Waiter`) as long as it lives."""

    def __init__(
        self,
        partition: HostedPartition,
        kind: CoordinatorKind[EventT, AnswerT, EffectT, EntryT, ContentT],
        ports: RunnerPorts,
        on_end: Callable[["CoordinatorRunner[EventT, AnswerT, EffectT, EntryT, ContentT]"], None],
        on_loaded: Callable[[TopicPartition], None],
    ) -> None:
        """`on_end` is called when the runner ends by itself, `on_loaded` when the log is read."""
        self.partition = partition
        self._kind = kind
        self._ports = ports
        self._on_end = on_end
        self._on_loaded = on_loaded
        self.load_failure: Exception | None = None
        """The error of the failed load; None: there was none."""
        self.leader_epoch = partition.leader_epoch
        self._leader = partition.leader
        self.coordinator: Core[EventT, AnswerT, EffectT, EntryT, ContentT] | None = None
        """The state machine; None while it is loading."""
        self._ended = False
        self._load = StateRestore(
            partition.log,
            kind.load_codec,
            lambda: kind.new_core(partition.config.log.max_message_bytes),
            ports,
            is_over=self.try_complete,
            on_restored=self._restored,
            on_failed=self._load_failed,
        )
        self._carrier = kind.new_carrier(self)
        self._early: list[tuple[EventOf[EventT], OnAnswer[AnswerT]]] | None = []
        """Requests that arrived before the end of the load; None when requests wait no longer."""
        self._requests = 0
        self._pending = PendingAnswers(ports.scheduler, kind.refusal)
        self._appended: deque[tuple[int, int]] = deque()
        """(number of a record, the end offset at which it is replicated), in order."""
        self._events: deque[_Due[EventT]] = deque()
        """Events to be stepped, in order. Between two steps it is empty unless no step is
        possible."""
        self._news: deque[_Due[EventT]] = deque()
        """Submitted events that do not write. They precede the other events, in order: of two ends
        of a producer's transactions the first must be stepped first."""
        self._stepping = False
        """True during a step, also while its records are encoded in the background."""
        self._encoding = False
        self._retry_is_due = False

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition

    def start(self) -> None:
        self.partition.produce_waiters.add(self)
        self._load.start()
        self._ports.scheduler.call_later(LOAD_WAIT_MS, self._take_early)

    def request(self, event_of: EventOf[EventT], on_answer: OnAnswer[AnswerT]) -> None:
        """Step a request; it is answered once, now or later."""
        if self._early is not None and self.coordinator is None and not self._ended:
            self._early.append((event_of, on_answer))
            return
        if self._news:
            self._drain()
        number = self._requests + 1
        make = partial(event_of, number)
        event = self._possible(_made(make))
        if isinstance(event, ErrorCode):
            guarded("an answer", on_answer, self._kind.refusal(0, event))
            return
        self._requests = number
        self._pending.expect(number, on_answer)
        if self._stepping or (self._events and self._kind.writes(event)):
            self._events.append(_Due(number, make))
        else:
            self._stepping = True
            self._step(number, event)
            self._stepping = self._encoding
        if self._events or self._news:
            self._drain()

    def submit(self, event: EventT | Replicated) -> None:
        """Step an event that is not sent again, as soon as it is possible."""
        if not self._ended:
            queue = self._events if self._kind.writes(event) else self._news
            queue.append(_Due(0, lambda: event))
        self._drain()

    def tick(self) -> None:
        """Do the periodic work; at the next tick, if it is not possible now."""
        event = self._kind.tick(now(self._ports.clock))
        if not isinstance(self._possible(event), ErrorCode):
            self.submit(event)

    def end(self) -> None:
        """End; waiting requests are refused with NOT_COORDINATOR."""
        if self._ended:
            return
        self._ended = True
        self._load.cancel()
        self._carrier.close()
        self._events.clear()
        self._news.clear()
        self.partition.produce_waiters.discard(self)
        self._take_early()
        self._pending.refuse_all(ErrorCode.NOT_COORDINATOR)

    def try_complete(self) -> bool:
        """Apply a new high watermark or role of the partition. True when the runner has ended."""
        if self._ended:
            return True
        partition = self.partition
        reads_another_log = self.coordinator is None and partition.log is not self._load.log
        if partition.leader is None or partition.leader is not self._leader or reads_another_log:
            self._end_by_itself()
            return True
        if partition.leader_epoch == self.leader_epoch + 1:
            self.leader_epoch += 1
            self._carrier.lead_on(self.leader_epoch)
        elif partition.leader_epoch != self.leader_epoch:
            self._end_by_itself()
            return True
        self._note_replicated()
        return False

    # --- loading ---

    def _restored(
        self,
        codec: StateCodec[EntryT, ContentT],
        coordinator: Core[EventT, AnswerT, EffectT, EntryT, ContentT],
        effects: Effects[EntryT, AnswerT, EffectT],
        keys: int,
    ) -> None:
        self._codec, self.coordinator = codec, coordinator
        log.info(
            "coordinates partition=%s leader_epoch=%d keys=%d end_offset=%d",
            self.topic_partition, self.leader_epoch, keys, self._load.end_offset,
        )  # fmt: skip
        self._appended.append((0, self._load.end_offset))
        records = [effect for effect in effects if isinstance(effect, AppendRecord)]
        parts = self._encode(records) if records else []
        if (
            guarded("the beginning of a coordinator", self._carry_out, effects, records, parts)
            is FAILED
        ):
            self._end_by_itself()
            return
        self._on_loaded(self.topic_partition)
        self._carrier.begin()
        self._note_replicated()
        self._drain()
        self._take_early()

    def _take_early(self) -> None:
        """Step the requests that have waited for the load, or refuse them."""
        early, self._early = self._early or [], None
        for event_of, on_answer in early:
            self.request(event_of, on_answer)

    def _load_failed(self, failure: Exception) -> None:
        self.load_failure = failure
        self._end_by_itself()

    # --- steps ---

    def _possible(self, event: EventT | Replicated | ErrorCode) -> EventT | Replicated | ErrorCode:
        """The event as it can be stepped now; an ErrorCode, also a given one, when it can't."""
        if isinstance(event, ErrorCode):
            return event
        refusal = self._refusal_where(writes=self._kind.writes(event))
        if refusal is ErrorCode.NONE:
            return event
        if refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # This broker leads: only replicas are missing.
            return self._kind.without_append(event) or refusal
        return refusal

    def _refusal_where(self, *, writes: bool) -> ErrorCode:
        if self._ended:
            return ErrorCode.NOT_COORDINATOR
        if self.coordinator is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        try:
            needs = NEEDS_REPLICAS if writes else NEEDS_LEADERSHIP
            self.partition.check_writable(needs, self.leader_epoch)
        except KafkaError as failure:
            if failure.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def _drain(self) -> None:
        if self._stepping:
            return
        self._stepping = True
        while not self._encoding and (queue := self._news or self._events):
            if not self._step_next(queue):
                break
        if self._encoding:
            return
        self._stepping = False
        if self._news or self._events:
            self._retry_later()

    def _step_next(self, queue: deque[_Due[EventT]]) -> bool:
        """Step the first event of a queue. Return False when that is not possible now."""
        due = queue[0]
        made = _made(due.make)
        if isinstance(made, ErrorCode):
            queue.popleft()
            self._pending.give(due.number, self._kind.refusal(0, made))
            return True
        event = self._possible(made)
        if isinstance(event, ErrorCode):
            return False
        queue.popleft()
        self._step(due.number, event)
        return True

    def _step(self, number: int, event: EventT | Replicated) -> None:
        """Step a possible event."""
        try:
            self._take_step(number, event)
        except Exception as failure:  # noqa: BLE001 - reported; the runner ends
            report(f"{self._kind.name}: {type(event).__name__}", failure)
            # The core's state may be half changed by now; the log is not.
            self._refuse(number, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._end_by_itself()

    def _take_step(self, number: int, event: EventT | Replicated) -> None:
        coordinator = self.coordinator
        assert coordinator is not None, "a step is possible"
        effects = coordinator.step(event)
        records = [effect for effect in effects if isinstance(effect, AppendRecord)]
        if not records:
            self._carry_out(effects, records, [])
        elif len(records) > INLINE_RECORDS or any(
            self._codec.is_long(each.entry) for each in records
        ):
            self._encoding = True
            self._ports.background.submit(
                partial(self._encode, records),
                lambda parts: self._encoded(number, effects, records, parts),
                lambda _failure: self._encoded(number, effects, records, None),
            )
        else:
            self._finish_step(number, effects, records, self._encode(records))

    def _encoded(
        self,
        number: int,
        effects: Effects[EntryT, AnswerT, EffectT],
        records: list[AppendRecord[EntryT]],
        parts: list[tuple[int, memoryview]] | None,
    ) -> None:
        """Finish a step whose records are encoded; `parts` None: the encoding failed."""
        self._encoding = self._stepping = False
        if self._ended:
            return
        if parts is None or (
            guarded("a step of a coordinator", self._finish_step, number, effects, records, parts)
            is FAILED
        ):
            self._refuse(number, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._end_by_itself()
        self._drain()

    def _finish_step(
        self,
        number: int,
        effects: Effects[EntryT, AnswerT, EffectT],
        records: list[AppendRecord[EntryT]],
        parts: list[tuple[int, memoryview]],
    ) -> None:
        try:
            self._carry_out(effects, records, parts)
        except KafkaError as failure:
            log.warning(
                "coordinator of %s starts again, a record was not stored: %s",
                self.topic_partition,
                failure,
            )
            if failure.code in TOO_LARGE:
                # The next try would fail, too.
                self._refuse(number, ErrorCode.INVALID_REQUEST)
            self._end_by_itself()

    def _refuse(self, number: int, code: ErrorCode) -> None:
        """Refuse a request that would fail again, so that its client does not repeat it."""
        if number in self._pending:
            self._pending.give(number, self._kind.refusal(number, code))

    def _carry_out(
        self,
        effects: Effects[EntryT, AnswerT, EffectT],
        records: list[AppendRecord[EntryT]],
        parts: list[tuple[int, memoryview]],
    ) -> None:
        """`records`: those among the effects; `parts`: the same as batches. Raises KafkaError when
        they can't be stored, before anything else is done."""
        if parts:
            self._append(records, parts)
        for effect in effects:
            if isinstance(effect, self._kind.answer_type):
                self._pending.give(effect.request, effect)
            elif isinstance(effect, AnswerEach):
                self._pending.give_each(effect.answers)
            elif isinstance(effect, CountAppended):
                self._appended.append((effect.number, self.partition.log.log_end_offset))
            elif isinstance(effect, TickAgain):
                self._ports.scheduler.call_soon(self.tick)
            elif not isinstance(effect, AppendRecord | Answer):
                self._carrier.carry_out(effect)

    def _encode(self, records: list[AppendRecord[EntryT]]) -> list[tuple[int, memoryview]]:
        """Encode the records as one batch if the log accepts it, otherwise as several in the core's
        order: a failover may find only the first of them replicated. What the core has tied
        together is never cut, and refused where the log does not accept it."""
        return self._codec.encode_entries(
            (each.entry for each in records),
            now_ms=self._ports.clock.wall_ms(),
            part_bytes=self.partition.config.log.max_message_bytes - BATCH_HEADER_BYTES,
            tied={place for place, each in enumerate(records) if each.with_last},
        )

    def _append(
        self, records: list[AppendRecord[EntryT]], parts: list[tuple[int, memoryview]]
    ) -> None:
        done = 0
        for count, batch in parts:
            result = self.partition.append_state(
                self.leader_epoch, batch, producer=records[0].producer
            )
            done += count
            self._appended.append((records[done - 1].number, result.last_offset + 1))

    # --- replication and retries ---

    def _note_replicated(self) -> None:
        """Submit Replicated for the records below the high watermark, while enough replicas are in
        sync."""
        leader = self.partition.leader
        if leader is None or not self._appended or self._appended[0][1] > leader.high_watermark:
            return
        # Restored records count with any number of replicas in sync.
        counts_replicas = self._appended[0][0] > 0
        refusal = self._refusal_where(writes=counts_replicas)
        if refusal is not ErrorCode.NONE:
            if refusal is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self._retry_later()
            return
        number = 0
        while self._appended and self._appended[0][1] <= leader.high_watermark:
            number, _ = self._appended.popleft()
            if not counts_replicas:
                break
        self.submit(Replicated(number=number))
        if not counts_replicas:
            self._note_replicated()

    def _retry_later(self) -> None:
        if not self._retry_is_due and not self._ended:
            self._retry_is_due = True
            self._ports.scheduler.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._retry_is_due = False
        if not self.try_complete():
            self._drain()

    def _end_by_itself(self) -> None:
        self.end()
        self._on_end(self)


def _made(make: Callable[[], EventT | Replicated | ErrorCode]) -> EventT | Replicated | ErrorCode:
    try:
        return make()
    except Exception as failure:  # noqa: BLE001 - reported; the request is refused
        report("a request to a coordinator", failure)
        return ErrorCode.UNKNOWN_SERVER_ERROR
