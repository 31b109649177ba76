"""One coordinator at work: a partition of its log under one leader epoch. Its one rule: what the
core says is carried out in its order, and only by the leader that the core was restored for.

    loading -> running -> ended          loading: requests wait for a while, from then on they get
                                         COORDINATOR_LOAD_IN_PROGRESS
                                         ended: NOT_COORDINATOR, also to all that wait

Before each step that may write it is made sure that this broker leads, and that enough replicas are
in sync: an append is then refused by the medium only, which ends the runner; the next one reads the
log. What has nobody to ask again (markers that are written, records that are replicated) waits
until a step is possible. What may not write needs no replicas, and waits for nothing but the load.
Whatever a request has waited for, its event is made when it is stepped: that is where its handler
looks again at what may have changed since it came.

A broker that leads on under the next leader epoch goes on with the same state: nobody else can have
written to the log. After an epoch that it has not heard of another may have, and the log is read.
Source: KIP-98, R-SPARK2; decisions 520, 521 and 700.
"""

import importlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from storage_engine.broker.coordinators.state_load import Content, StateLoad
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.unexpected import FAILED, guarded
from storage_engine.core.coordinator_log import AppendRecord, CountAppended, Moment, Replicated
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background, Clock, Scheduler

log = logging.getLogger(__name__)

RETRY_MS = 100
"""After which what could not be stepped is tried again."""

LOAD_WAIT_MS = 5_000
"""From the election on, how long requests wait for the load instead of being refused: librdkafka
asks again but twice within 300 ms, and the first load of a process imports Arrow."""

BATCH_HEADER_BYTES = 1024
"""Room for a batch's header, and more."""

TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

NEEDS_REPLICAS = -1
NEEDS_LEADERSHIP = 1
"""What is asked of a partition, as `acks`."""


def moment(clock: Clock) -> Moment:
    """Now."""
    return Moment(clock.monotonic_ms(), clock.wall_ms())


OnAnswer = Callable[[Any], None]
EventOf = Callable[[int], Any]
"""Makes the event of a request, given the request's number, or says by an ErrorCode why there may
be none any more. Called in the turn in which the event is stepped, and sometimes also before."""


class Core(Protocol):
    """A coordinator's state machine."""

    def restore(self, content: Content, at: Moment, /) -> list[Any]: ...

    def step(self, event: Any, /) -> list[Any]: ...


class Carrier(Protocol):
    """Carries out the effects that only one kind of coordinator has."""

    def carry_out(self, effect: Any) -> None: ...

    def lead_on(self, leader_epoch: int) -> None:
        """Go on under that leader epoch."""
        ...

    def close(self) -> None:
        """Do and hear nothing more."""
        ...


class _Waiting(NamedTuple):
    """A request that could not be stepped when it came."""

    number: int
    event_of: EventOf


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerPorts:
    """What a runner works with; the same for all of a broker."""

    scheduler: Scheduler
    clock: Clock
    background: Background


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKind:
    """What tells coordinators of transactions from those of groups."""

    name: str
    """What they coordinate."""
    topic: str
    codec: str
    """Module with `new_content`, `replay` and `encode_entries`, of the log's records."""
    new_core: Callable[[int], Core]
    """Of a log with that `max.message.bytes`."""
    new_carrier: Callable[["CoordinatorRunner"], Carrier]
    tick: Callable[[Moment], Any]
    """The event of the periodic work."""
    answer_types: tuple[type, ...]
    """Their `request` says what they answer."""
    refusal: Callable[[int, ErrorCode], Any]
    """The answer to a request that failed."""


class CoordinatorRunner:
    """See above. Waits on its partition (`purgatory.Waiter`) as long as it lives."""

    def __init__(
        self,
        partition: HostedPartition,
        kind: CoordinatorKind,
        ports: RunnerPorts,
        on_end: Callable[["CoordinatorRunner"], None],
        on_loaded: Callable[[TopicPartition], None],
    ) -> None:
        """`on_end` hears when it has ended by itself, `on_loaded` when the log is read."""
        self.partition = partition
        self._kind = kind
        self._ports = ports
        self._on_end = on_end
        self._on_loaded = on_loaded
        self.load_failure: Exception | None = None
        """Why the log could not be read."""
        self.leader_epoch = partition.leader_epoch
        self._leader = partition.leader
        self.coordinator: Any = None
        """The core; None while it is loading."""
        self._ended = False
        self._load = StateLoad(
            partition.log,
            kind.codec,
            ports.background,
            on_loaded=self._loaded,
            on_failed=self._load_failed,
        )
        self._carrier = kind.new_carrier(self)
        self._early: list[tuple[EventOf, OnAnswer]] | None = []
        """Requests that came before the load was done; None when they wait no longer."""
        self._requests = 0
        self._pending: dict[int, OnAnswer] = {}
        self._appended: deque[tuple[int, int]] = deque()
        """(number of a record, the end offset at which it is replicated), in order."""
        self._events: deque[Any] = deque()
        """To be stepped, in order; not empty outside a step only while none is possible."""
        self._stepping = False
        self._retry_is_due = False

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition

    def start(self) -> None:
        self.partition.produce_waiters.add(self)
        self._load.start()
        self._ports.scheduler.call_later(LOAD_WAIT_MS, self._take_early)

    def request(self, event_of: EventOf, on_answer: OnAnswer) -> None:
        """Step a request; it is answered once, now or later."""
        if self._early is not None and self.coordinator is None and not self._ended:
            self._early.append((event_of, on_answer))
            return
        number = self._requests + 1
        event = _event(event_of, number)
        refusal = self._refusal(event)
        if refusal is not ErrorCode.NONE:
            guarded("an answer", on_answer, self._kind.refusal(0, refusal))
            return
        self._requests = number
        self._pending[number] = on_answer
        if self._stepping or (self._events and _writes(event)):
            self._events.append(_Waiting(number, event_of))
        else:
            self._events.appendleft(event)
        self._drain()

    def submit(self, event: Any) -> None:
        """Step an event that nobody sends again, as soon as it is possible."""
        if not _writes(event) and not self._stepping and self._refusal(event) is ErrorCode.NONE:
            # It need not wait behind what has to write.
            self._events.appendleft(event)
        elif not self._ended:
            self._events.append(event)
        self._drain()

    def tick(self) -> None:
        """Do the periodic work; the next time, if it is not possible now."""
        event = self._kind.tick(moment(self._ports.clock))
        if self._refusal(event) is ErrorCode.NONE:
            self.submit(event)

    def end(self) -> None:
        """Do nothing more; who waits looks for another coordinator."""
        if self._ended:
            return
        self._ended = True
        self._load.cancel()
        self._carrier.close()
        self._events.clear()
        self.partition.produce_waiters.discard(self)
        self._take_early()
        pending, self._pending = self._pending, {}
        for on_answer in pending.values():
            guarded("an answer", on_answer, self._kind.refusal(0, ErrorCode.NOT_COORDINATOR))

    def try_complete(self) -> bool:
        """The high watermark or the role of the partition has changed. True when it is over."""
        if self._ended:
            return True
        partition = self.partition
        if partition.leader is None or partition.leader is not self._leader:
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

    def _loaded(self, content: Content) -> None:
        if self.try_complete():
            return
        coordinator = self._kind.new_core(self.partition.config.log.max_message_bytes)
        try:
            effects = coordinator.restore(content, moment(self._ports.clock))
        except Exception as failure:  # noqa: BLE001 - told with its trace by who reads again
            self._load_failed(failure)
            return
        self.coordinator = coordinator
        log.info(
            "coordinates partition=%s leader_epoch=%d keys=%d end_offset=%d",
            self.topic_partition,
            self.leader_epoch,
            len(content),
            self._load.end_offset,
        )
        self._appended.append((0, self._load.end_offset))
        if guarded("the beginning of a coordinator", self._carry_out, effects) is FAILED:
            self._end_by_itself()
            return
        self._on_loaded(self.topic_partition)
        self._note_replicated()
        self._drain()
        self._take_early()

    def _take_early(self) -> None:
        """Step what has waited for the load, or refuse it."""
        early, self._early = self._early or [], None
        for event_of, on_answer in early:
            self.request(event_of, on_answer)

    def _load_failed(self, failure: Exception) -> None:
        self.load_failure = failure
        self._end_by_itself()

    # --- steps ---

    def _refusal(self, event: Any) -> ErrorCode:
        """NONE when a step is possible."""
        if isinstance(event, ErrorCode):
            return event
        if self._ended:
            return ErrorCode.NOT_COORDINATOR
        if self.coordinator is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        try:
            needs = NEEDS_REPLICAS if _writes(event) else NEEDS_LEADERSHIP
            self.partition.current.check_writable(needs, self.leader_epoch)
        except KafkaError as failure:
            if failure.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def _drain(self) -> None:
        if self._stepping:
            return
        self._stepping = True
        while self._events and self._step_next():
            pass
        self._stepping = False
        if self._events:
            self._retry_later()

    def _step_next(self) -> bool:
        """Step the first event. False when that is not possible now."""
        event = self._events[0]
        if isinstance(event, _Waiting):
            number, event_of = event
            event = _event(event_of, number)
            if isinstance(event, ErrorCode):
                self._events.popleft()
                self._answer(number, self._kind.refusal(0, event))
                return True
        if self._refusal(event) is not ErrorCode.NONE:
            return False
        self._events.popleft()
        step = f"{self._kind.name}: {type(event).__name__}"
        if guarded(step, self._step, event) is FAILED:
            # What the core knows may be half done by now; what the log says is not.
            self._refuse(event, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._end_by_itself()
        return True

    def _step(self, event: Any) -> None:
        coordinator = self.coordinator
        assert coordinator is not None, "a step is possible"
        try:
            self._carry_out(coordinator.step(event))
        except KafkaError as failure:
            log.warning(
                "coordinator of %s starts anew, a record was not stored: %s",
                self.topic_partition,
                failure,
            )
            if failure.code in TOO_LARGE:
                # It would be so the next time, too.
                self._refuse(event, ErrorCode.INVALID_REQUEST)
            self._end_by_itself()

    def _refuse(self, event: Any, code: ErrorCode) -> None:
        """Who sent this event would send it again, in vain."""
        number = getattr(event, "request", 0)
        if number in self._pending:
            self._answer(number, self._kind.refusal(number, code))

    def _answer(self, number: int, answer: Any) -> None:
        guarded("an answer", self._pending.pop(number), answer)

    def _carry_out(self, effects: list[Any]) -> None:
        """Raises KafkaError when the records can't be stored; nothing else has happened then."""
        records = [effect for effect in effects if isinstance(effect, AppendRecord)]
        if records:
            self._append(records)
        for effect in effects:
            if isinstance(effect, self._kind.answer_types):
                answer: Any = effect
                self._answer(answer.request, answer)
            elif isinstance(effect, CountAppended):
                self._appended.append((effect.number, self.partition.log.log_end_offset))
            elif not isinstance(effect, AppendRecord):
                self._carrier.carry_out(effect)

    def _append(self, records: list[AppendRecord]) -> None:
        """As one batch if the log takes it; else the first ones first, as the core has put them:
        what a failover may find of them is what is replicated, however few that are."""
        # It was imported when the state was loaded.
        parts = importlib.import_module(self._kind.codec).encode_entries(
            ((each.key, each.record) for each in records),
            now_ms=self._ports.clock.wall_ms(),
            part_bytes=self.partition.config.log.max_message_bytes - BATCH_HEADER_BYTES,
        )
        done = 0
        for count, batch in parts:
            result = self.partition.current.append_state(
                self.leader_epoch, batch, producer=records[0].producer
            )
            done += count
            self._appended.append((records[done - 1].number, result.last_offset + 1))

    # --- what is heard from elsewhere ---

    def _note_replicated(self) -> None:
        """As many records as the high watermark has passed, while enough replicas have them."""
        leader = self.partition.leader
        if leader is None or not self._appended or self._appended[0][1] > leader.high_watermark:
            return
        refusal = self._refusal(Replicated)
        if refusal is not ErrorCode.NONE:
            if refusal is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self._retry_later()
            return
        number = 0
        while self._appended and self._appended[0][1] <= leader.high_watermark:
            number, _ = self._appended.popleft()
        self.submit(Replicated(number=number))

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


def _event(event_of: EventOf, number: int) -> Any:
    event = guarded("a request to a coordinator", event_of, number)
    return ErrorCode.UNKNOWN_SERVER_ERROR if event is FAILED else event


def _writes(event: Any) -> bool:
    """Whether a step may append."""
    return getattr(event, "writes", True)
