"""All replicas on this broker: found by their partition, opened, given roles, moved and stopped.

An order of the controller counts unless it is of an older leader epoch than the replica knows.
Source: R-CTL3, R-CTL6, R-REP10.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from storage_engine.broker import unexpected
from storage_engine.broker.cluster.log_dir_notice import LogDirNotice
from storage_engine.broker.replicas.durable_acks import DurableAcks
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.isr_writer import IsrWriter
from storage_engine.broker.replicas.lease import LeaderLease
from storage_engine.broker.replicas.partition_ports import PartitionPorts, ReplicaChanges
from storage_engine.broker.replicas.purgatory import EndOfTurn
from storage_engine.broker.replicas.replica_failures import PostponedRoles, ReplicaFailures
from storage_engine.broker.settings.topic_config import TopicConfig
from storage_engine.core.errors import (
    ErrorCode,
    KafkaError,
    LogBusyError,
    LogDirError,
    LogStorageError,
)
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.metrics import FiguresByTopic
from storage_engine.core.ports import Background, Clock, Endpoint, MetadataStore, Scheduler
from storage_engine.core.replication.partition import LagCheck, LagLimits
from storage_engine.log.append_rules import requirement_of
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.dirs.log_moves import FutureLog
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.upkeep import load_codec
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrPartition

SAME_CHECKPOINT_MS = 60_000
"""High watermarks that have not moved are written again after this: a disk that fails is noticed.
"""

DURABLE_ACKS_REPORT_MS = 60_000
"""How often the log reports the flushes before acknowledgements."""

log = logging.getLogger(__name__)
state_change_log = logging.getLogger("headrace.state_change")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """The settings of the replica manager."""

    broker_id: BrokerId
    lag: LagLimits
    checkpoint_interval_ms: int
    isr_check_interval_ms: int
    """How often lagging followers are sought: half of replica.lag.time.max.ms, as in Kafka."""


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
        fetchers: FetcherManager,
        topic_config: Callable[[str], TopicConfig],
        lease_valid: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._logs = logs
        self._scheduler = scheduler
        self._clock = clock
        self._fetchers = fetchers
        self._topic_config = topic_config
        self._partitions: dict[TopicPartition, HostedPartition] = {}
        self.figures = FiguresByTopic()
        self._background = background
        self._codec_is_loaded = False
        self._stopped = False
        self._checkpointed: dict[TopicPartition, int] = {}
        self._checkpointed_ms = 0
        self.changes = ReplicaChanges()
        self.lease = LeaderLease(lease_valid)
        self.durable_acks = DurableAcks(background, scheduler)
        self.isr = IsrWriter(metadata_store, scheduler, local=settings.broker_id, lease=self.lease)
        self._failures = ReplicaFailures(
            self._partitions,
            logs=logs,
            scheduler=scheduler,
            notice=LogDirNotice(metadata_store, scheduler, broker_id=settings.broker_id),
            fetchers=fetchers,
        )
        self._ports: PartitionPorts[HostedPartition] = PartitionPorts(
            broker_id=settings.broker_id,
            lag=settings.lag,
            clock=clock,
            lease=self.lease,
            end_of_turn=EndOfTurn(scheduler),
            changes=self.changes,
            propose_isr=self.isr.propose,
            read_isr=self.isr.read_back,
            flush=self.durable_acks.flush,
            on_failure=self._failures.fail,
        )
        self.postponed = PostponedRoles(scheduler, self._apply_postponed)
        """Orders that wait for descriptors, memory or room."""
        logs.dirs.on_failed = self._failures.fail_log_dir
        self.on_leading: Callable[[HostedPartition], None] = lambda _: None
        """Called with each partition that this broker begins to lead, also under another epoch."""

    def start(self) -> None:
        """Start the periodic work."""
        self._every(self._settings.isr_check_interval_ms, self._check_laggards)
        self._every(self._settings.checkpoint_interval_ms, self._checkpoint_what_moved)
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
        partition = self._hosted(tp)
        partition.check_leads(leader_epoch)
        return partition

    def in_service(self, tp: TopicPartition) -> HostedPartition:
        """The replica, leader or not. Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION,
        KAFKA_STORAGE_ERROR."""
        partition = self._hosted(tp)
        partition.check_in_service()
        return partition

    def _hosted(self, tp: TopicPartition) -> HostedPartition:
        partition = self._partitions.get(tp)
        if partition is None:
            raise KafkaError(
                f"this broker has no replica of {tp}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return partition

    # --- roles, as the controller orders them ---

    def apply_leadership(
        self, item: LeaderAndIsrPartition, endpoints: dict[int, Endpoint]
    ) -> ErrorCode:
        """Apply one partition of a LeaderAndIsr (R-CTL3). The controller epoch was checked before,
        and `roles_taken` follows after the last of them."""
        tp = TopicPartition(item.topic, item.partition)
        if self._settings.broker_id not in item.replicas:
            log.warning("ignored leadership of %s: replicas are %s", tp, list(item.replicas))
            return ErrorCode.NONE
        if self._stopped:
            return ErrorCode.BROKER_NOT_AVAILABLE
        self.postponed.forget(tp)
        try:
            partition = self._open(tp, item)
        except LogBusyError as failure:
            self.postponed.add(tp, (item, endpoints), failure)
            return ErrorCode.NONE
        except (LogStorageError, OSError) as failure:
            log.error("can't open the log of %s: %s", tp, failure)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition.role is Role.FAILED:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if item.leader_epoch == partition.leader_epoch and item.leader == partition.leader_id:
            self.refresh_endpoint(partition, endpoints)
            return ErrorCode.NONE
        if item.leader_epoch <= partition.leader_epoch:
            state_change_log.info(
                "refused partition=%s leader=%d leader_epoch=%d known_leader_epoch=%d "
                "controller_epoch=%d",
                tp, item.leader, item.leader_epoch, partition.leader_epoch, item.controller_epoch,
            )  # fmt: skip
            return ErrorCode.FENCED_LEADER_EPOCH
        try:
            self._take_role(partition, item, endpoints)
        except LogBusyError as failure:
            self.postponed.add(tp, (item, endpoints), failure)
            return ErrorCode.NONE
        except LogStorageError as failure:
            partition.fail(failure)
            return failure.code
        except KafkaError as failure:
            log.error("can't lead %s: %s", tp, failure)
            return failure.code
        if partition.leader is not None:
            self.on_leading(partition)
        return ErrorCode.NONE

    def _take_role(
        self,
        partition: HostedPartition,
        item: LeaderAndIsrPartition,
        endpoints: dict[int, Endpoint],
    ) -> None:
        """Raises KafkaError when the log refuses; the role is then unchanged."""
        if item.leader == self._settings.broker_id:
            partition.lead(item)
            self._fetchers.remove(partition.topic_partition)
        else:
            partition.follow(item)
            endpoint = endpoints.get(item.leader)
            if item.leader == -1 or endpoint is None:
                self._fetchers.remove(partition.topic_partition)
            else:
                self._fetchers.add(partition, endpoint)
        state_change_log.info(
            "became %s partition=%s leader=%d leader_epoch=%d isr=%s controller_epoch=%d",
            partition.role.value,
            partition.topic_partition,
            item.leader,
            item.leader_epoch,
            list(item.isr),
            item.controller_epoch,
        )

    def refresh_endpoint(self, partition: HostedPartition, endpoints: dict[int, Endpoint]) -> None:
        """Follow a leader that came back at another address, by a repeated order."""
        endpoint = endpoints.get(partition.leader_id)
        if partition.role is Role.FOLLOWER and endpoint is not None:
            self._fetchers.add(partition, endpoint)

    def _apply_postponed(
        self, orders: list[tuple[LeaderAndIsrPartition, dict[int, Endpoint]]]
    ) -> None:
        """Apply orders that were answered when they came: where one can't be carried out, the
        controller is notified that a replica has failed, and asks again."""
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
                self._failures.notify_controller()
            self.roles_taken()

    def roles_taken(self) -> None:
        """Start to fetch the partitions that are followed now: the whole order is applied."""
        self._fetchers.wake()

    def _open(self, tp: TopicPartition, item: LeaderAndIsrPartition) -> HostedPartition:
        partition = self._partitions.get(tp)
        topic_id = item.topic_id if item.topic_id.int else None
        if partition is not None and topic_id not in (None, partition.topic_id):
            log.warning("the topic of %s was created again, the replica of the old topic ends", tp)
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
                ports=self._ports,
                figures=self.figures.join(tp.topic),
            )
            self._partitions[tp] = partition
            # Recovery may have left something to flush.
            partition.note_change()
        return partition

    def _prepare_for(self, config: TopicConfig) -> None:
        """Load the codec before the first append that needs it, if the topic checks its records."""
        if requirement_of(config.log) is not None and not self._codec_is_loaded:
            self._codec_is_loaded = True
            self._background.submit(load_codec, lambda _: None, _complain)

    def stop(self, tp: TopicPartition, *, delete: bool) -> None:
        """Stop a replica; with `delete`, remove its files (R-CTL6). Raises LogStorageError when
        that fails."""
        self.postponed.forget(tp)
        self._fetchers.remove(tp)
        self._logs.moves.cancel(tp)
        partition = self._partitions.pop(tp, None)
        self.changes.high_watermarks = True
        if partition is not None:
            self.figures.leave(tp.topic)
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
            except LogDirError as failure:
                if replica_log is not None:
                    self._failures.fail_log_dir(replica_log.directory.parent, failure)
                raise
            state_change_log.info("deleted partition=%s", tp)

    def fail_alone(self, partition: HostedPartition, failure: Exception) -> None:
        """Take one partition out of service until the next start."""
        self._failures.fail_alone(partition, failure)

    def fail_log_dir(self, path: Path, failure: Exception) -> None:
        """Take a log dir out of service until the next start."""
        self._failures.fail_log_dir(path, failure)

    def open_again(self, partition: HostedPartition) -> None:
        """End a change of the log that was cut short. Raises LogStorageError where that is not
        possible yet."""
        partition.log.open_again()
        partition.note_change()
        self._fetchers.look_at(partition.topic_partition)

    def replace_log(self, partition: HostedPartition, replaced: PartitionLog) -> None:
        """Use a replica's log in another log dir from now on: it has the same records, all of them
        flushed."""
        tp = partition.topic_partition
        partition.replace_log(replaced)
        self._fetchers.look_at(tp)
        self.checkpoint_high_watermarks()
        state_change_log.info("moved partition=%s log_dir=%s", tp, replaced.directory.parent)
        if partition.leader is not None:
            # First: a coordinator may still read the previous log.
            self.on_leading(partition)
        # Flushes that wait, or are under way, belong to the previous log.
        partition.flushed()

    def apply_topic_config(self, topic: str, config: TopicConfig) -> None:
        was_compacted = False
        for partition in self._partitions.values():
            if partition.topic_partition.topic == topic:
                self._prepare_for(config)
                was_compacted = was_compacted or partition.config.log.compacts
                partition.config = config
                partition.log.update_config(config.log)
                partition.note_change()
                partition.flushed()
                if partition.leader is not None and partition.must_flush:
                    partition.flush()
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
            leader = partition.leader
            if leader is not None:
                try:
                    end = partition.log.log_end_offset
                    if not leader.holds_all_everywhere(end):
                        partition.step(LagCheck(now_ms=now_ms, log_end_offset=end))
                except Exception as error:  # noqa: BLE001 - whatever it is, the others are looked at
                    unexpected.report(f"in-sync replicas of {partition.topic_partition}", error)

    def _checkpoint_what_moved(self) -> None:
        is_late = self._clock.monotonic_ms() - self._checkpointed_ms >= SAME_CHECKPOINT_MS
        has_moved, self.changes.high_watermarks = self.changes.high_watermarks, False
        if is_late or (has_moved and self.high_watermarks != self._checkpointed):
            self.checkpoint_high_watermarks()

    def checkpoint_high_watermarks(self) -> None:
        """Write all high watermarks, so that they survive a restart (R-REP10)."""
        self._checkpointed = self.high_watermarks
        self._checkpointed_ms = self._clock.monotonic_ms()
        self._logs.checkpoint_high_watermarks(self._checkpointed)

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of every log on this broker, by partition."""
        return {
            # Not hosted yet: the high watermark read at the start is still valid.
            **{tp: self._logs.high_watermark(tp) for tp in self._logs.logs},
            **{tp: p.high_watermark for tp, p in self._partitions.items()},
        }

    def close(self) -> None:
        """Stop periodic work, answer waiting requests, write the high watermarks."""
        self._stopped = True
        self.durable_acks.report()
        self.checkpoint_high_watermarks()
        for partition in self._partitions.values():
            partition.become_follower(-1)
            partition.wake_all()

    def has_log(self, tp: TopicPartition) -> bool:
        """Whether the partition has files here, hosted or not."""
        return self._logs.get(tp) is not None

    def logs_here(self) -> dict[TopicPartition, PartitionLog]:
        """The logs of all partitions with files here, hosted or not."""
        return dict(self._logs.logs)

    def future_of(self, tp: TopicPartition) -> FutureLog | None:
        """The replica's copy in another log dir, while it is being moved there."""
        return self._logs.moves.under_way.get(tp)

    def working_log_dirs(self) -> list[Path]:
        """The log dirs that have not failed."""
        return self._logs.dirs.working_paths

    def led_here(self) -> Iterable[HostedPartition]:
        return (p for p in self._partitions.values() if p.leader is not None)


def _complain(error: Exception) -> None:
    log.error("can't load numpy and Arrow yet; the first compaction tries again: %s", error)
