"""One replica on this broker: its log, its role, and who waits on it.

Rule: the role is either leader (a `LeaderPartition`), follower of a named leader, or none; only the
replica manager changes it.
"""

import copy
import enum
from collections.abc import Container
from uuid import UUID

from storage_engine.broker.replicas.purgatory import WaitList
from storage_engine.broker.settings.topic_config import TopicConfig
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.internal_topics import INTERNAL_TOPICS
from storage_engine.core.replication.partition import LeaderPartition
from storage_engine.core.transactions.verification_guard import VerificationGuards
from storage_engine.log.partition_log import PartitionLog


class Role(enum.Enum):
    """What this replica does."""

    IDLE = "idle"
    """No leader is known."""
    LEADER = "leader"
    FOLLOWER = "follower"
    FAILED = "failed"
    """Its folder failed: nothing is served until the broker is restarted."""


class HostedPartition:
    """State of one replica."""

    __slots__ = (
        "_guards",
        "_guards_epoch",
        "_successor",
        "assigned_replicas",
        "config",
        "controller_epoch",
        "data_waiters",
        "deletion_waiters",
        "dirty",
        "follower_high_watermark",
        "follower_log_starts",
        "is_internal",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "produce_waiters",
        "role",
        "topic_id",
        "topic_partition",
        "unflushed_appends",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        log: PartitionLog,
        topic_id: UUID,
        config: TopicConfig,
        high_watermark: int,
    ) -> None:
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
        self.assigned_replicas: tuple[int, ...] = ()
        self.follower_high_watermark = max(
            log.log_start_offset, min(high_watermark, log.log_end_offset)
        )
        """Valid while this replica does not lead; `high_watermark` is the one to read."""
        self.produce_waiters = WaitList()
        self.data_waiters = WaitList()
        self.deletion_waiters = WaitList()
        self.follower_log_starts: dict[int, int] = {}
        """Where the followers begin, as they said in their fetches since this replica leads."""
        self.dirty = False
        """True while the replica manager has it in its list for the end of the loop's turn."""
        self.unflushed_appends = 0
        """Appends of this turn that wait for a flush."""
        self._guards = VerificationGuards()
        self._guards_epoch = -1
        self._successor: HostedPartition | None = None
        """The object that stands for the replica since its log was replaced."""

    @property
    def current(self) -> "HostedPartition":
        """The object that stands for this replica now. Who keeps a partition while it waits asks
        this one: the log may have been replaced meanwhile, and role and log of the object before
        stay as they were then."""
        replica = self
        while replica._successor is not None:
            replica = replica._successor
        return replica

    @property
    def guards(self) -> VerificationGuards:
        """Which producers may write in transactions, under the present leader epoch."""
        if self._guards_epoch != self.leader_epoch:
            self._guards = VerificationGuards()
            self._guards_epoch = self.leader_epoch
        return self._guards

    @property
    def high_watermark(self) -> int:
        leader = self.leader
        return self.follower_high_watermark if leader is None else leader.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """What readers of committed transactions may see; at most the high watermark."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def must_flush(self) -> bool:
        """Whether there is something that may not be acknowledged yet: `flush.before.ack`."""
        return self.config.flush_before_ack and not self.log.is_durable

    @property
    def flushed_end_offset(self) -> int | None:
        """What of the log counts as held here; None: all of it."""
        return self.log.recovery_point if self.config.flush_before_ack else None

    @property
    def in_sync_count(self) -> int:
        """Size of the committed ISR; 0 when this broker does not lead."""
        return len(self.leader.isr.members) if self.leader is not None else 0

    @property
    def min_in_sync_count(self) -> int:
        """`min.insync.replicas`, but never more than the partition has replicas (as Kafka does)."""
        return min(self.config.min_insync_replicas, len(self.assigned_replicas))

    def check_leader_epoch(self, leader_epoch: int) -> None:
        """Raises KafkaError where a client knows of another leader epoch; -1: it does not care."""
        if leader_epoch in (-1, self.leader_epoch):
            return
        raise KafkaError(
            f"{self.topic_partition} has leader epoch {self.leader_epoch}, not {leader_epoch}",
            ErrorCode.FENCED_LEADER_EPOCH
            if leader_epoch < self.leader_epoch
            else ErrorCode.UNKNOWN_LEADER_EPOCH,
        )

    def with_log(self, log: PartitionLog) -> "HostedPartition":
        """The same replica with its log in another place: role and waiters are shared. Work under
        way on the old log keeps the old object, whose failures nobody heeds, and finds the new one
        as `current`."""
        replica = copy.copy(self)
        replica.log = log
        replica.dirty = False
        replica.unflushed_appends = 0
        self._successor = replica
        return replica

    def become_leader(self, leader: LeaderPartition) -> None:
        self.role = Role.LEADER
        self.leader = leader
        self.follower_log_starts = {}

    def become_follower(self, leader_id: int) -> None:
        self._keep_high_watermark()
        self.role = Role.FOLLOWER if leader_id != -1 else Role.IDLE

    def fail(self) -> None:
        self._keep_high_watermark()
        self.role = Role.FAILED

    def wake_all(self) -> None:
        """The role changed: everyone who waits has to look again."""
        self.produce_waiters.wake()
        self.data_waiters.wake()
        self.deletion_waiters.wake()

    def note_follower_log_start(self, replica: int, log_start_offset: int) -> None:
        """A follower says where it begins."""
        self.follower_log_starts[replica] = log_start_offset
        if len(self.deletion_waiters):
            self.deletion_waiters.wake()

    def low_watermark(self, live: Container[int]) -> int:
        """Where the last of the live replicas begins; -1 as long as one has not said it."""
        starts = [
            self.follower_log_starts.get(replica, -1)
            for replica in self.assigned_replicas
            if replica != self.leader_id and replica in live
        ]
        return min([self.log.log_start_offset, *starts])

    def _keep_high_watermark(self) -> None:
        if self.leader is not None:
            self.follower_high_watermark = self.leader.high_watermark
            self.leader = None
