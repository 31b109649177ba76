"""All replicas on this broker: their roles, appends, and the end-of-turn work that appends cause.

Rule: an append only marks its partition as dirty; high watermarks, waiting fetches and produces are
looked at once per turn of the event loop, however many requests that turn had. Source: R-CTL3,
R-REP2 to R-REP6, document 001 (LeaderAndIsrRequest).
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from storage_engine.broker import unexpected
from storage_engine.broker.cluster.folder_notice import FolderNotice
from storage_engine.broker.replicas.appends import Appends
from storage_engine.broker.replicas.durable_acks import DurableAcks
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.isr_writer import IsrWriter
from storage_engine.broker.replicas.postponed_roles import PostponedRoles
from storage_engine.broker.replicas.replica_failures import ReplicaFailures
from storage_engine.broker.replicas.replica_roles import ReplicaRoles
from storage_engine.broker.settings.topic_config import TopicConfig
from storage_engine.core.errors import (
    ErrorCode,
    KafkaError,
    LogBusyError,
    LogFolderError,
    LogStorageError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Background, Clock, Endpoint, MetadataStore, Scheduler
from storage_engine.core.replication.partition import (
    Appended,
    Flushed,
    FollowerFetched,
    LagLimits,
    Tick,
)
from storage_engine.log.appending.append_preparation import requirement_of
from storage_engine.log.cleaning.log_compaction import load_codec
from storage_engine.log.folders.log_manager import LogManager
from storage_engine.log.folders.log_moves import FutureLog
from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrPartition

DURABLE_ACKS_REPORT_MS = 60_000
"""How often the log tells what the flushes before acknowledgements have done."""

log = logging.getLogger(__name__)
state_change_log = logging.getLogger("headrace.state_change")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """What the replica manager takes from the broker's configuration."""

    broker_id: int
    lag: LagLimits
    checkpoint_interval_ms: int
    isr_check_interval_ms: int
    """How often laggards are looked for: half of replica.lag.time.max.ms, as Kafka does."""


class ReplicaManager:
    """Owner of every HostedPartition."""

    def __init__(
        self,
        settings: ReplicaSettings,
        *,
        logs: LogManager,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        clock: Clock,
        background: Background,
        topic_config: Callable[[str], TopicConfig],
        lease_valid: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._logs = logs
        self._scheduler = scheduler
        self._clock = clock
        self._topic_config = topic_config
        self._lease_valid = lease_valid
        self._partitions: dict[TopicPartition, HostedPartition] = {}
        self._dirty: list[HostedPartition] = []
        self._background = background
        self._codec_is_loaded = False
        self._stopped = False
        self._fenced = False
        self._isr = IsrWriter(
            metadata_store,
            scheduler,
            local=settings.broker_id,
            is_fenced=lambda: self._fenced,
            on_high_watermark=self._high_watermark_advanced,
        )
        self.durable_acks = DurableAcks(
            background, scheduler, on_flushed=self._flushed, on_failure=self.fail
        )
        self.roles = ReplicaRoles(
            broker_id=settings.broker_id,
            lag=settings.lag,
            clock=clock,
            isr=self._isr,
            durable_acks=self.durable_acks,
        )
        self._failures = ReplicaFailures(
            self._partitions,
            logs=logs,
            scheduler=scheduler,
            notice=FolderNotice(metadata_store, scheduler, broker_id=settings.broker_id),
            stop_fetching=self.roles.stop_fetching,
        )
        self.postponed = PostponedRoles(scheduler, self._apply_postponed)
        """Orders that wait for descriptors, memory or room."""
        logs.on_folder_failed = self._failures.fail_folder
        self.appends = Appends(self, clock, on_appended=self._appended)
        self.on_leading: Callable[[HostedPartition], None] = lambda _: None
        """Hears of every partition that this broker leads from now on, or under another epoch."""

    def start(self) -> None:
        """Begin the periodic work."""
        self._every(self._settings.isr_check_interval_ms, self._check_laggards)
        self._every(self._settings.checkpoint_interval_ms, self.checkpoint_high_watermarks)
        self._every(DURABLE_ACKS_REPORT_MS, self.durable_acks.report)

    # --- looking up ---

    def get(self, tp: TopicPartition) -> HostedPartition | None:
        return self._partitions.get(tp)

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(self._partitions.values())

    def leader(self, tp: TopicPartition, leader_epoch: int = -1) -> HostedPartition:
        """The replica, if this broker leads it under that leader epoch (-1: any).

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER,
        FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        partition = self._partitions.get(tp)
        if partition is None:
            raise KafkaError(f"{tp} is not here", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.leader is None:
            if partition.role is Role.FAILED:
                raise KafkaError(f"the folder of {tp} failed", ErrorCode.KAFKA_STORAGE_ERROR)
            raise KafkaError(f"{tp} is led elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition.check_leader_epoch(leader_epoch)
        return partition

    def in_service(self, tp: TopicPartition) -> HostedPartition:
        """The replica, whoever leads. Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION,
        KAFKA_STORAGE_ERROR.
        """
        partition = self._partitions.get(tp)
        if partition is None:
            raise KafkaError(f"{tp} is not here", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.role is Role.FAILED:
            raise KafkaError(f"the folder of {tp} failed", ErrorCode.KAFKA_STORAGE_ERROR)
        return partition

    # --- appending ---

    def _appended(self, partition: HostedPartition, count: int) -> None:
        if partition.config.flush_before_ack:
            partition.unflushed_appends += count
        if not partition.dirty:
            self._mark_dirty(partition)

    @property
    def has_lease(self) -> bool:
        """Whether this broker surely leads what it takes itself to lead (R-REP11)."""
        return not self._fenced and self._lease_valid()

    def check_lease(self) -> None:
        """Raises KafkaError NOT_LEADER_OR_FOLLOWER when others may lead what this broker led."""
        if not self.has_lease:
            raise KafkaError(
                "this broker lost touch with ZooKeeper and may have been replaced as leader",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )

    def _mark_dirty(self, partition: HostedPartition) -> None:
        partition.dirty = True
        if not self._dirty:
            self._scheduler.call_soon(self._drain)
        self._dirty.append(partition)

    def _drain(self) -> None:
        """Once per turn: what the appends of this turn mean for high watermarks and waiters."""
        dirty, self._dirty = self._dirty, []
        for partition in dirty:
            partition.dirty = False
        for partition in dirty:
            if self._partitions.get(partition.topic_partition) is not partition:
                # Its log was replaced in this turn: the one that counts is marked as well.
                continue
            try:
                self._end_turn(partition)
            except Exception as error:  # noqa: BLE001 - whatever it is, the others are served
                unexpected.report(f"appends to {partition.topic_partition}", error)

    def _end_turn(self, partition: HostedPartition) -> None:
        if partition.leader is not None:
            end = partition.log.log_end_offset
            self._isr.step(partition, Appended(log_end_offset=end))
            if partition.unflushed_appends:
                self._flush_appends(partition)
        if len(partition.data_waiters):
            partition.data_waiters.wake()

    def _flush_appends(self, partition: HostedPartition) -> None:
        batches, partition.unflushed_appends = partition.unflushed_appends, 0
        if partition.must_flush:
            self.durable_acks.flush(partition, batches=batches)

    def _flushed(self, partition: HostedPartition) -> None:
        """More of the log is on the medium: where that counts, it may be acknowledged."""
        partition = partition.current
        if partition.leader is not None:
            flushed = Flushed(flushed_end_offset=partition.flushed_end_offset)
            self._isr.step(partition, flushed)
        if len(partition.produce_waiters):
            partition.produce_waiters.wake()

    def _high_watermark_advanced(self, partition: HostedPartition) -> None:
        partition = partition.current
        partition.log.note_high_watermark(partition.high_watermark)
        if len(partition.produce_waiters):
            partition.produce_waiters.wake()
        if not partition.dirty and len(partition.data_waiters):
            self._mark_dirty(partition)

    # --- followers' fetches, seen from the leader ---

    def follower_fetched(
        self,
        partition: HostedPartition,
        replica: int,
        fetch_offset: int,
        *,
        eligible: bool,
        broker_epoch: int,
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        log_end_offset = partition.log.log_end_offset
        leader = partition.leader
        if (
            leader is not None
            and fetch_offset == log_end_offset
            and leader.note_fetch_at_end(
                replica, fetch_offset, now_ms=now_ms, broker_epoch=broker_epoch
            )
        ):
            return
        event = FollowerFetched(
            replica=replica,
            fetch_offset=fetch_offset,
            log_end_offset=log_end_offset,
            now_ms=now_ms,
            eligible=eligible,
            broker_epoch=broker_epoch,
        )
        self._isr.step(partition, event)

    # --- roles, as the controller orders them ---

    def apply_leadership(
        self, item: LeaderAndIsrPartition, endpoints: dict[int, Endpoint]
    ) -> ErrorCode:
        """Take one partition of a LeaderAndIsr (R-CTL3). The controller epoch was checked before,
        and `roles_taken` follows after the last of them."""
        tp = TopicPartition(item.topic, item.partition)
        if self._settings.broker_id not in item.replicas:
            log.warning("ignored leadership of %s: replicas are %s", tp, list(item.replicas))
            return ErrorCode.NONE
        if self._stopped:
            return ErrorCode.BROKER_NOT_AVAILABLE
        self.postponed.forget(tp)
        try:
            partition = self._hosted(tp, item)
        except LogBusyError as failure:
            self.postponed.add(tp, (item, endpoints), failure)
            return ErrorCode.NONE
        except (LogStorageError, OSError) as failure:
            log.error("can't open the log of %s: %s", tp, failure)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition.role is Role.FAILED:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if item.leader_epoch == partition.leader_epoch and item.leader == partition.leader_id:
            self.roles.refresh_endpoint(partition, endpoints)
            return ErrorCode.NONE
        if item.leader_epoch <= partition.leader_epoch:
            state_change_log.info(
                "refused partition=%s leader=%d leader_epoch=%d known_leader_epoch=%d "
                "controller_epoch=%d",
                tp, item.leader, item.leader_epoch, partition.leader_epoch, item.controller_epoch,
            )  # fmt: skip
            return ErrorCode.FENCED_LEADER_EPOCH
        try:
            self.roles.take(partition, item, endpoints)
        except LogBusyError as failure:
            self.postponed.add(tp, (item, endpoints), failure)
            return ErrorCode.NONE
        except LogStorageError as failure:
            self.fail(partition, failure)
            return failure.code
        except KafkaError as failure:
            log.error("can't lead %s: %s", tp, failure)
            return failure.code
        if partition.leader is not None:
            self.on_leading(partition)
        return ErrorCode.NONE

    def _apply_postponed(
        self, orders: list[tuple[LeaderAndIsrPartition, dict[int, Endpoint]]]
    ) -> None:
        """The answer to the controller was given when they came: where one can't be carried out,
        the controller is told that a replica has failed, and asks again."""
        has_failed = False
        try:
            for item, endpoints in orders:
                try:
                    code = self.apply_leadership(item, endpoints)
                except Exception as error:  # noqa: BLE001 - whatever it is, the others are carried out
                    has_failed = True
                    tp = TopicPartition(item.topic, item.partition)
                    unexpected.report(f"postponed leadership of {tp} not taken", error)
                else:
                    has_failed = has_failed or code is ErrorCode.KAFKA_STORAGE_ERROR
        finally:
            if has_failed:
                self._failures.tell_controller()
            self.roles_taken()

    def roles_taken(self) -> None:
        """All that an order has to say is applied: what is now followed is fetched."""
        self.roles.fetch()

    def _hosted(self, tp: TopicPartition, item: LeaderAndIsrPartition) -> HostedPartition:
        partition = self._partitions.get(tp)
        topic_id = item.topic_id if item.topic_id.int else None
        if partition is not None and topic_id not in (None, partition.topic_id):
            log.warning("%s is of a topic made anew, the replica of the old one ends", tp)
            self.stop(tp, delete=False)
            partition = None
        if partition is None:
            config = self._topic_config(tp.topic)
            self._prepare_for(config)
            partition = HostedPartition(
                tp,
                log=self._logs.get_or_create(tp, config.log, topic_id=topic_id),
                topic_id=item.topic_id,
                config=config,
                high_watermark=self._logs.high_watermark(tp),
            )
            self._partitions[tp] = partition
        return partition

    def _prepare_for(self, config: TopicConfig) -> None:
        """Before the first topic takes a batch whose records must be looked at."""
        if requirement_of(config.log) is not None and not self._codec_is_loaded:
            self._codec_is_loaded = True
            self._background.submit(load_codec, lambda _: None, _complain)

    def fence(self) -> None:
        """The session is lost: others may lead what this broker led (R-REP11)."""
        self._fenced = True

    def unfence(self) -> None:
        """The controller has told the present incarnation all that it leads."""
        self._fenced = False

    def stop(self, tp: TopicPartition, *, delete: bool) -> None:
        """Stop a replica; with `delete`, remove its files (R-CTL6). LogStorageError when that
        fails."""
        self.postponed.forget(tp)
        self.roles.stop_fetching(tp)
        self._logs.moves.cancel(tp)
        partition = self._partitions.pop(tp, None)
        if partition is not None:
            partition.leader_id = -1
            partition.become_follower(-1)
            partition.wake_all()
            if not delete:
                self._logs.keep_high_watermark(tp, partition.high_watermark)
            state_change_log.info("stopped partition=%s", tp)
        if delete:
            replica_log = self._logs.get(tp)
            try:
                self._logs.delete(tp)
            except LogFolderError as failure:
                if replica_log is not None:
                    self._failures.fail_folder(replica_log.directory.parent, failure)
                raise
            state_change_log.info("deleted partition=%s", tp)

    def fail(self, partition: HostedPartition, failure: Exception) -> None:
        """Take a partition out of service, and with it all others of its data folder where that is
        what failed: a failed fsync (OSError) always means the folder."""
        self._failures.fail(partition, failure)

    def fail_alone(self, partition: HostedPartition, failure: Exception) -> None:
        """Take one partition out of service until the next start."""
        self._failures.fail_alone(partition, failure)

    def fail_folder(self, path: Path, failure: Exception) -> None:
        """Take a data folder out of service until the next start."""
        self._failures.fail_folder(path, failure)

    def replace_log(self, partition: HostedPartition, replaced: PartitionLog) -> None:
        """The replica lies in another data folder from now on, with the same records, all of which
        are on the medium there."""
        tp = partition.topic_partition
        replica = partition.with_log(replaced)
        self._partitions[tp] = replica
        self.roles.replace(replica)
        self._mark_dirty(replica)
        self.checkpoint_high_watermarks()
        state_change_log.info("moved partition=%s folder=%s", tp, replaced.directory.parent)
        if replica.leader is not None:
            # First: a coordinator works on the log of the object that it was made for.
            self.on_leading(replica)
        # Flushes that wait, or are under way, are of the log before and tell nothing of this one.
        self._flushed(replica)

    def apply_topic_config(self, topic: str, config: TopicConfig) -> None:
        was_compacted = False
        for partition in self._partitions.values():
            if partition.topic_partition.topic == topic:
                self._prepare_for(config)
                was_compacted = was_compacted or partition.config.log.compacts
                partition.config = config
                partition.log.update_config(config.log)
                self._flushed(partition)
                if partition.leader is not None and partition.must_flush:
                    self.durable_acks.flush(partition)
        if was_compacted and not config.log.compacts:
            self._logs.write_cleaner_offsets()

    # --- periodic work ---

    def _every(self, interval_ms: int, work: Callable[[], None]) -> None:
        def run() -> None:
            if not self._stopped:
                # First, so that work that fails is not the last.
                self._scheduler.call_later(interval_ms, run)
                work()

        self._scheduler.call_later(interval_ms, run)

    def _check_laggards(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for partition in list(self._partitions.values()):
            if partition.leader is not None:
                end = partition.log.log_end_offset
                try:
                    self._isr.step(partition, Tick(now_ms=now_ms, log_end_offset=end))
                except Exception as error:  # noqa: BLE001 - whatever it is, the others are looked at
                    unexpected.report(f"in-sync replicas of {partition.topic_partition}", error)

    def checkpoint_high_watermarks(self) -> None:
        """Write all high watermarks, so that they survive a restart (R-REP10)."""
        self._logs.checkpoint_high_watermarks(self.high_watermarks)

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Of all logs that are here."""
        return {
            # Not hosted yet: what was known at the start stays true.
            **{tp: self._logs.high_watermark(tp) for tp in self._logs.logs},
            **{tp: p.high_watermark for tp, p in self._partitions.items()},
        }

    def close(self) -> None:
        """Stop periodic work, answer who waits, write the high watermarks."""
        self._stopped = True
        self.durable_acks.report()
        self.checkpoint_high_watermarks()
        for partition in self._partitions.values():
            partition.become_follower(-1)
            partition.wake_all()

    def logs_here(self) -> dict[TopicPartition, PartitionLog]:
        """Every partition of which there are files, hosted or not."""
        return dict(self._logs.logs)

    def future_of(self, tp: TopicPartition) -> FutureLog | None:
        """Its copy in another data folder, while it moves there."""
        return self._logs.moves.under_way.get(tp)

    def working_folders(self) -> list[Path]:
        """The data folders that have not failed."""
        return self._logs.working_folders

    def led_here(self) -> Iterable[HostedPartition]:
        return (p for p in self._partitions.values() if p.leader is not None)


def _complain(error: Exception) -> None:
    log.error("numpy and Arrow are loaded when they are needed, since now they can't be: %s", error)
