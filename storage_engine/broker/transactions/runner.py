"""One transaction coordinator at work: a partition of the state log under one leader epoch. Its one
rule: what the core says is carried out in its order, and only by the leader that the core was
restored for.

    loading -> running -> ended          loading: COORDINATOR_LOAD_IN_PROGRESS
                                         ended: NOT_COORDINATOR, also to all that wait

Before each step it is made sure that this broker leads, and that enough replicas are in sync: an
append is then refused by the medium only, which ends the runner; the next one reads the log. What
has nobody to ask again (markers that are written, records that are replicated) waits until a step
is possible. Source: KIP-98, R-SPARK2; decisions 520 and 521.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from storage_engine.broker.appends import Appends
from storage_engine.broker.hosted_partition import HostedPartition
from storage_engine.broker.metadata_cache import MetadataCache
from storage_engine.broker.transactions.marker_sender import MarkerSender
from storage_engine.broker.transactions.marker_writes import MarkerWrites
from storage_engine.broker.transactions.state_load import Content, StateLoad
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background, Clock, Coordination, Scheduler, Transport
from storage_engine.core.transaction_events import (
    Answer,
    AppendRecord,
    Effect,
    Event,
    MarkersWritten,
    Replicated,
    SendMarkers,
    Tick,
)
from storage_engine.core.transactions import TransactionCoordinator

log = logging.getLogger(__name__)

RETRY_MS = 100
"""After which what could not be stepped is tried again."""

TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

OnAnswer = Callable[[Answer], None]
EventOf = Callable[[int], Event]
"""Makes the event of a request, given the request's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerPorts:
    """What a runner works with; the same for all of a broker."""

    broker_id: int
    appends: Appends
    markers: MarkerWrites
    metadata: MetadataCache
    coordination: Coordination
    transport: Transport
    scheduler: Scheduler
    clock: Clock
    background: Background
    new_coordinator: Callable[[], TransactionCoordinator]


class CoordinatorRunner:
    """See above. Waits on its partition (`purgatory.Waiter`) as long as it lives."""

    def __init__(
        self,
        partition: HostedPartition,
        ports: RunnerPorts,
        on_end: Callable[["CoordinatorRunner"], None],
    ) -> None:
        """`on_end` hears when it has ended by itself."""
        self.partition = partition
        self._ports = ports
        self._on_end = on_end
        self.leader_epoch = partition.leader_epoch
        self.coordinator: TransactionCoordinator | None = None
        """None while it is loading."""
        self._ended = False
        self._load = StateLoad(
            partition.log,
            ports.background,
            on_loaded=self._loaded,
            on_failed=self._load_failed,
        )
        self._markers = MarkerSender(
            coordinator_epoch=self.leader_epoch,
            broker_id=ports.broker_id,
            metadata=ports.metadata,
            coordination=ports.coordination,
            transport=ports.transport,
            scheduler=ports.scheduler,
            writes=ports.markers,
            on_written=self._markers_written,
        )
        self._requests = 0
        self._pending: dict[int, OnAnswer] = {}
        self._appended: deque[tuple[int, int]] = deque()
        """(number of a record, the end offset at which it is replicated), in order."""
        self._events: deque[Event] = deque()
        """To be stepped, in order; not empty outside a step only while none is possible."""
        self._stepping = False
        self._retry_is_due = False

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition

    def start(self) -> None:
        self.partition.produce_waiters.add(self)
        self._load.start()

    def request(self, event_of: EventOf, on_answer: OnAnswer) -> None:
        """Step a request; it is answered once, now or later."""
        refusal = self._refusal()
        if refusal is not ErrorCode.NONE:
            on_answer(Answer(request=0, error=refusal))
            return
        self._requests += 1
        self._pending[self._requests] = on_answer
        self._submit(event_of(self._requests))

    def tick(self) -> None:
        """Look for transactions that last too long."""
        if self._refusal() is ErrorCode.NONE:
            self._submit(Tick(now_ms=self._ports.clock.wall_ms()))

    def end(self) -> None:
        """Do nothing more; who waits looks for another coordinator."""
        if self._ended:
            return
        self._ended = True
        self._load.cancel()
        self._markers.close()
        self._events.clear()
        self.partition.produce_waiters.discard(self)
        pending, self._pending = self._pending, {}
        for on_answer in pending.values():
            on_answer(Answer(request=0, error=ErrorCode.NOT_COORDINATOR))

    def try_complete(self) -> bool:
        """The high watermark or the role of the partition has changed. True when it is over."""
        if self._ended:
            return True
        partition = self.partition
        if partition.leader is None or partition.leader_epoch != self.leader_epoch:
            self._end_by_itself()
            return True
        self._note_replicated()
        return False

    # --- loading ---

    def _loaded(self, content: Content) -> None:
        if self.try_complete():
            return
        coordinator = self._ports.new_coordinator()
        effects = coordinator.restore(content, self._ports.clock.wall_ms())
        self.coordinator = coordinator
        log.info(
            "coordinates partition=%s leader_epoch=%d keys=%d end_offset=%d",
            self.topic_partition,
            self.leader_epoch,
            len(content),
            self._load.end_offset,
        )
        self._appended.append((0, self._load.end_offset))
        self._carry_out(effects)
        self._note_replicated()

    def _load_failed(self, failure: Exception) -> None:
        log.error("state of transactions not read partition=%s: %s", self.topic_partition, failure)
        self._end_by_itself()

    # --- steps ---

    def _refusal(self) -> ErrorCode:
        """NONE when a step is possible."""
        if self._ended:
            return ErrorCode.NOT_COORDINATOR
        if self.coordinator is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        try:
            self._ports.appends.writable(self.topic_partition, -1, self.leader_epoch)
        except KafkaError as failure:
            if failure.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def _submit(self, event: Event) -> None:
        self._events.append(event)
        self._drain()

    def _drain(self) -> None:
        if self._stepping:
            return
        self._stepping = True
        whole = False
        try:
            while self._events and self._refusal() is ErrorCode.NONE:
                self._step(self._events.popleft())
            whole = True
        finally:
            self._stepping = False
            if not whole:
                # By a bug of ours; the log is right in any case.
                self._end_by_itself()
        if self._events:
            self._retry_later()

    def _step(self, event: Event) -> None:
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
            number = getattr(event, "request", 0)
            if failure.code in TOO_LARGE and number in self._pending:
                # It would be so the next time, too.
                too_large = Answer(request=number, error=ErrorCode.INVALID_REQUEST)
                self._pending.pop(number)(too_large)
            self._end_by_itself()

    def _carry_out(self, effects: list[Effect]) -> None:
        """Raises KafkaError when the records can't be stored; nothing has happened then."""
        # Only here: Arrow is there once the state is loaded.
        from storage_engine.protocol.transaction_batches import encode_entries

        records = [effect for effect in effects if isinstance(effect, AppendRecord)]
        if records:
            batch = encode_entries(
                ((each.key, each.record) for each in records),
                now_ms=self._ports.clock.wall_ms(),
            )
            result = self._ports.appends.append_state(
                self.topic_partition, self.leader_epoch, batch
            )
            self._appended.append((records[-1].number, result.last_offset + 1))
        for effect in effects:
            match effect:
                case Answer():
                    self._pending.pop(effect.request)(effect)
                case SendMarkers():
                    self._markers.send(effect)
                case AppendRecord():
                    pass

    # --- what is heard from elsewhere ---

    def _note_replicated(self) -> None:
        """As many records as the high watermark has passed, while enough replicas have them."""
        leader = self.partition.leader
        if leader is None or not self._appended or self._appended[0][1] > leader.high_watermark:
            return
        refusal = self._refusal()
        if refusal is not ErrorCode.NONE:
            if refusal is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self._retry_later()
            return
        number = 0
        while self._appended and self._appended[0][1] <= leader.high_watermark:
            number, _ = self._appended.popleft()
        self._submit(Replicated(number=number))

    def _markers_written(
        self, producer_id: int, epoch: int, partitions: frozenset[TopicPartition]
    ) -> None:
        self._submit(
            MarkersWritten(
                producer_id=producer_id,
                producer_epoch=epoch,
                partitions=partitions,
                now_ms=self._ports.clock.wall_ms(),
            )
        )

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
