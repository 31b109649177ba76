"""One replica on this broker: its log, its role, and the requests that wait for it.

Only a leader that holds its lease appends, with acks=all only where enough replicas are in sync;
only the coordinator writes to its own log. Appends take effect at the end of their event loop
turn, however many it had: the high watermark moves, waiting requests are woken, and logs that must
be flushed are. Only the replica manager changes the role. Source: R-REP2 to
R-REP6, R-REP11, R-CTL3, KIP-98.
"""

import enum
from collections.abc import Callable
from functools import partial
from uuid import UUID

from storage_engine.broker.replicas.follower_watches import FollowerWatches
from storage_engine.broker.replicas.partition_ports import PartitionPorts
from storage_engine.broker.replicas.purgatory import WaitList
from storage_engine.broker.settings.topic_config import TopicConfig
from storage_engine.core.errors import ErrorCode, KafkaError, LogBusyError, LogStorageError
from storage_engine.core.ids import (
    GROUP_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    BrokerEpoch,
    BrokerId,
    TopicPartition,
)
from storage_engine.core.metrics import CODEC_BYTE, TopicFigures
from storage_engine.core.replication.partition import (
    Appended,
    Effect,
    Event,
    Flushed,
    FollowerFetched,
    HighWatermarkAdvanced,
    LagCheck,
    LeaderPartition,
    Leadership,
    ProposeIsr,
    ReadState,
    SessionClock,
)
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.core.transactions.verification_guard import VerificationGuards
from storage_engine.log.append_rules import AppendOutcome, AppendResult
from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrPartition
from storage_engine.protocol.records.record_batch import patch_producer


class Role(enum.Enum):
    """The role of a replica: it has none while no leader is known, nor after its log dir has
    failed, until the broker is restarted."""

    IDLE = "idle"
    LEADER = "leader"
    FOLLOWER = "follower"
    FAILED = "failed"


class HostedPartition:
    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        log: PartitionLog,
        topic_id: UUID,
        config: TopicConfig,
        high_watermark: int,
        ports: "PartitionPorts[HostedPartition]",
        figures: TopicFigures | None = None,
    ) -> None:
        """`figures`: the figures of its topic, which all of its partitions here share."""
        self.ports = ports
        self.figures = TopicFigures() if figures is None else figures
        self.topic_partition = topic_partition
        self.is_internal = topic_partition.topic in INTERNAL_TOPICS
        self.log = log
        self.topic_id = topic_id
        self.config = config
        self.role = Role.IDLE
        self.leader: LeaderPartition | None = None
        self.leader_id = -1
        self.leader_epoch = -1
        self.controller_epoch = -1
        self.assigned_replicas: tuple[BrokerId, ...] = ()
        self.follower_high_watermark = max(
            log.log_start_offset, min(high_watermark, log.log_end_offset)
        )
        """Valid while this replica does not lead; readers use `high_watermark`."""
        self.produce_waiters = WaitList()
        self.data_waiters = WaitList()
        self.follower_watches = FollowerWatches()
        self.deletion_waiters = WaitList()
        self.follower_log_starts: dict[int, int] = {}
        """The log start offsets of the followers, from their fetches since this replica leads."""
        self._is_due = False
        """True while `_end_turn` is due."""
        self._has_grown = False
        """True while `_end_turn` is due for more than readers of the high watermark."""
        self._unflushed_appends = 0
        """Appends of this turn that wait for a flush."""
        self.guards = VerificationGuards()
        """The producers that may write in transactions, in the present leader epoch."""

    @property
    def high_watermark(self) -> int:
        leader = self.leader
        return self.follower_high_watermark if leader is None else leader.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that readers of committed transactions may see; at most the high
        watermark."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def must_flush(self) -> bool:
        """Whether there are records that may not be acknowledged yet: `flush.before.ack`."""
        return self.config.flush_before_ack and not self.log.is_durable

    @property
    def flushed_end_offset(self) -> int | None:
        """The end of the records that count as held by this replica; None means the whole log."""
        return self.log.recovery_point if self.config.flush_before_ack else None

    @property
    def in_sync_count(self) -> int:
        """Size of the committed ISR; 0 when this broker does not lead."""
        return len(self.leader.isr.members) if self.leader is not None else 0

    @property
    def min_in_sync_count(self) -> int:
        """`min.insync.replicas`, but never more than the partition has replicas (as Kafka does)."""
        least, replicas = self.config.min_insync_replicas, len(self.assigned_replicas)
        return least if least < replicas else replicas

    def check_in_service(self) -> None:
        """Raises KafkaError KAFKA_STORAGE_ERROR when the replica has failed."""
        if self.role is Role.FAILED:
            raise KafkaError(
                f"{self.topic_partition} is offline here: repair its log dir, restart the broker",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )

    def check_leads(self, leader_epoch: int = -1) -> None:
        """Raises KafkaError unless this broker leads under that leader epoch (-1: any):
        KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH."""
        if self.leader is None:
            self.check_in_service()
            raise KafkaError(
                f"this broker does not lead {self.topic_partition}",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
        self.check_leader_epoch(leader_epoch)

    def check_leader_epoch(self, leader_epoch: int) -> None:
        """Raises KafkaError when a client's leader epoch is another; -1: it names none."""
        if leader_epoch in (-1, self.leader_epoch):
            return
        is_old = leader_epoch < self.leader_epoch
        raise KafkaError(
            f"{self.topic_partition} has leader epoch {self.leader_epoch}, not {leader_epoch}",
            ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH,
        )

    def check_writable(self, acks: int, leader_epoch: int = -1) -> None:
        """Raises KafkaError when the log can't be appended to now."""
        if self.leader is None or leader_epoch not in (-1, self.leader_epoch):
            self.check_leads(leader_epoch)
        self.ports.lease.check()
        if acks == -1 and self.in_sync_count < self.min_in_sync_count:
            raise KafkaError(
                f"{self.topic_partition} has {self.in_sync_count} in-sync replicas, "
                f"min.insync.replicas is {self.min_in_sync_count}",
                ErrorCode.NOT_ENOUGH_REPLICAS,
            )

    def check_writable_by_producers(self, acks: int) -> None:
        """Like `check_writable`, but also refuses partitions that only a coordinator writes to."""
        self.check_writable(acks)
        if self.is_internal:
            raise KafkaError(
                f"{self.topic_partition} is written by its coordinator alone",
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            )

    # --- appends of a leader ---

    def append(
        self,
        records: memoryview,
        *,
        acks: int,
        in_transaction: bool = False,
        is_checked: bool = False,
    ) -> AppendOutcome:
        """Append a producer's batches, or return why they are not stored. `in_transaction`: the
        coordinator knows that the producer writes to this partition in a transaction. `is_checked`:
        a preparation has checked the batches."""
        try:
            self.check_writable_by_producers(acks)
            return self._append(records, in_transaction, is_checked)
        except KafkaError as failure:
            self.figures.failed_produces += 1
            self.note_refused(records, failure)
            return failure.as_outcome()

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: TransactionMarker
    ) -> AppendResult:
        """End a transaction in this partition, as its coordinator orders; with acks=all, since
        anything less can be lost. Raises KafkaError."""
        if self.topic_partition.topic == GROUP_OFFSETS_TOPIC:
            self.check_writable(-1)
        else:
            self.check_writable_by_producers(-1)
        # Also for a refused marker: to ask the coordinator once more does no harm.
        self.guards.note_marker(producer_id)
        try:
            result = self.log.leader_appends.append_marker(
                producer_id,
                producer_epoch,
                marker,
                leader_epoch=self.leader_epoch,
                now_ms=self.ports.clock.wall_ms(),
            )
        except LogStorageError as failure:
            self._note_failure(failure)
            raise
        self._note_append()
        return result

    def append_state(
        self, leader_epoch: int, records: memoryview, *, producer: tuple[int, int] | None = None
    ) -> AppendResult:
        """Append a coordinator's state, if this broker leads under that leader epoch, with
        acks=all. Raises KafkaError.

        `producer`: id and epoch, when it is part of a transaction; its sequence goes on from batch
        to batch, so that the log takes it as it takes a producer's own.
        """
        self.check_writable(-1, leader_epoch)
        if producer is not None:
            producer_id, epoch = producer
            patch_producer(
                records,
                0,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self.log.producer_state.next_sequence(producer_id, epoch),
                transactional=True,
            )
        try:
            return self._append(records, producer is not None)
        except KafkaError as failure:
            self.note_refused(records, failure)
            raise

    def note_refused(self, records: memoryview, failure: KafkaError) -> None:
        """The producer sends again what was refused with a retriable error: later ones wait."""
        if failure.retriable:
            self.log.leader_appends.note_refused(records)

    def _append(
        self, records: memoryview, in_transaction: bool, is_checked: bool = False
    ) -> AppendResult:
        """Append to the log; raises KafkaError."""
        try:
            result = self.log.leader_appends.append(
                records,
                leader_epoch=self.leader_epoch,
                now_ms=self.ports.clock.wall_ms(),
                allow_transactional=in_transaction,
                is_checked=is_checked,
                topic_id=self.topic_id,
            )
        except LogStorageError as failure:
            self._note_failure(failure)
            raise
        if not result.duplicate:
            count = result.next_offset - result.base_offset
            self.figures.appended(records[CODEC_BYTE], result.size, count)
        self._note_append()
        return result

    def _note_failure(self, failure: KafkaError) -> None:
        if isinstance(failure, LogStorageError) and not isinstance(failure, LogBusyError):
            self.fail(failure)

    # --- the end of a turn of the loop ---

    def _note_append(self) -> None:
        """Note that the leader has appended batches of a request."""
        if self.config.flush_before_ack:
            self._unflushed_appends += 1
        if not self._has_grown:
            self.mark()

    def mark(self) -> None:
        """Have high watermark and waiting requests checked at the end of this turn of the loop."""
        self._has_grown = True
        self.follower_watches.note()
        self._end_turn_soon()

    def _end_turn_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self.ports.end_of_turn.call(self.topic_partition, self._end_turn)

    def _end_turn(self) -> None:
        """Apply the appends of this turn."""
        has_grown, self._has_grown = self._has_grown, False
        self._is_due = False
        if has_grown:
            self.note_change()
        leader = self.leader
        if leader is not None and has_grown:
            self._carry_out(leader, leader.step(Appended(log_end_offset=self.log.log_end_offset)))
            batches, self._unflushed_appends = self._unflushed_appends, 0
            if batches and self.must_flush:
                self.flush(batches=batches)
        if has_grown:
            # Followers come first: producers wait for them. Those in sync read the same records.
            self.log.reads.share(self.follower_watches.wake)
        self.data_waiters.wake()

    def _carry_out(self, leader: LeaderPartition, effects: list[Effect]) -> None:
        """Carry out the effects of a step of the leader's state."""
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced():
                    self._high_watermark_advanced()
                case ProposeIsr():
                    self.ports.propose_isr(self, leader, effect)
                case ReadState():
                    self.ports.read_isr(self, leader)

    def _high_watermark_advanced(self) -> None:
        self.ports.changes.high_watermarks = True
        self.log.note_high_watermark(self.high_watermark)
        self.produce_waiters.wake()
        self.follower_watches.note()
        if self.data_waiters:
            self._end_turn_soon()

    # --- steps of a leader, and the requests that wait ---

    def note_change(self) -> None:
        """Report to periodic work that the log was written to."""
        changes = self.ports.changes
        changes.logs[self.topic_partition] = None
        changes.high_watermarks = True

    def step(self, event: Event) -> None:
        """Step the leader's state and carry out what follows, if this replica leads."""
        leader = self.leader
        if leader is not None:
            self._carry_out(leader, leader.step(event))
            if not isinstance(event, LagCheck):
                # With another ISR the fetches of a session don't count for this partition any more.
                self.follower_watches.note()

    def follower_fetched(
        self,
        replica: BrokerId,
        fetch_offset: int,
        *,
        eligible: bool,
        broker_epoch: BrokerEpoch,
        session: SessionClock | None = None,
    ) -> None:
        """Apply a follower's fetch: the follower holds all records below the offset."""
        now_ms = self.ports.clock.monotonic_ms()
        leader, log_end_offset = self.leader, self.log.log_end_offset
        if leader is None:
            return
        note_at_end = partial(
            leader.note_fetch_at_end,
            replica,
            fetch_offset,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
            session=session,
        )
        is_at_end = fetch_offset == log_end_offset
        if is_at_end and note_at_end():
            return
        event = FollowerFetched(
            replica=replica,
            fetch_offset=fetch_offset,
            log_end_offset=log_end_offset,
            now_ms=now_ms,
            eligible=eligible,
            broker_epoch=broker_epoch,
        )
        effects = leader.step(event)
        if is_at_end and session is not None:
            note_at_end()
        self._carry_out(leader, effects)

    def note_follower_log_start(self, replica: int, log_start_offset: int) -> None:
        """Note where a follower's log begins."""
        self.follower_log_starts[replica] = log_start_offset
        self.deletion_waiters.wake()

    def flush(self, settled: Callable[[], None] | None = None, *, batches: int = 0) -> None:
        """Flush all that is in the log; `settled` is called when that is over, well or not.
        `batches` of producers wait for it."""
        self.ports.flush(self, settled, batches)

    def flushed(self) -> None:
        """Apply a flush: where flushes count, more may be acknowledged."""
        self.step(Flushed(flushed_end_offset=self.flushed_end_offset))
        self.produce_waiters.wake()

    def wake_all(self) -> None:
        """The role changed: check everything that waits."""
        self.produce_waiters.wake()
        self.data_waiters.wake()
        self.follower_watches.wake()
        self.deletion_waiters.wake()

    # --- roles, which the replica manager gives ---

    def lead(self, item: LeaderAndIsrPartition) -> None:
        """Lead from now on, or under another epoch. Raises KafkaError when the log refuses, which
        may know a newer epoch; the role is then unchanged."""
        self.log.leader_appends.start_epoch(item.leader_epoch)
        self._note_order(item)
        leadership = Leadership(
            leader_epoch=item.leader_epoch,
            partition_epoch=item.partition_epoch,
            isr=frozenset(item.isr),
            assigned_replicas=self.assigned_replicas,
            joined_epochs=item.joined_epochs,
        )
        now_ms = self.ports.clock.monotonic_ms()
        leader = self.leader
        if leader is not None:
            effects = leader.renew(leadership, now_ms=now_ms)
        else:
            log_end_offset = self.log.log_end_offset
            leader = LeaderPartition(
                leadership,
                local=self.ports.broker_id,
                log_end_offset=log_end_offset,
                high_watermark=self.follower_high_watermark,
                now_ms=now_ms,
                limits=self.ports.lag,
                flushed_end_offset=self.flushed_end_offset,
            )
            self.role = Role.LEADER
            self.leader = leader
            self.follower_log_starts = {}
            effects = leader.step(Appended(log_end_offset=log_end_offset))
        self._carry_out(leader, effects)
        self.wake_all()
        if self.must_flush:
            self.flush()

    def follow(self, item: LeaderAndIsrPartition) -> None:
        """Follow the order's leader from now on, or nobody where it is -1."""
        self._note_order(item)
        self.become_follower(item.leader)
        self.wake_all()

    def _note_order(self, item: LeaderAndIsrPartition) -> None:
        self.ports.changes.high_watermarks = True
        self.controller_epoch = item.controller_epoch
        self.assigned_replicas = tuple(item.replicas)
        self.leader_id = item.leader
        if item.leader_epoch != self.leader_epoch:
            self.leader_epoch = item.leader_epoch
            self.guards = VerificationGuards()

    def become_follower(self, leader_id: int) -> None:
        """Change the role without waking waiting requests."""
        self._keep_high_watermark()
        self.role = Role.FOLLOWER if leader_id != -1 else Role.IDLE

    def fail(self, failure: Exception, of: PartitionLog | None = None) -> None:
        """The log could not be read or written; see `ReplicaFailures.fail`. `of`: the log of work
        that took more than a turn of the loop: if it was replaced meanwhile, nothing failed."""
        if of is None or of is self.log:
            self.ports.on_failure(self, failure)

    def take_offline(self) -> None:
        """Stop serving, without waking waiting requests."""
        self._keep_high_watermark()
        self.role = Role.FAILED

    def replace_log(self, log: PartitionLog) -> None:
        """Use this log from now on: it has the same records, all of them flushed. Work under way on
        the former log ends there."""
        self.log = log
        self.mark()

    def _keep_high_watermark(self) -> None:
        if self.leader is not None:
            self.follower_high_watermark = self.leader.high_watermark
            self.leader = None
