"""A partition that this broker follows, and the channel over which it fetches from the leader.

    caught up, or not known     "fetch"                 in-sync replicas: acks=all waits for these
    behind the high watermark   "catch-up"              replicas that fill their log
    with flush.before.ack       "durable fetch", "durable catch-up"

The leader's last answer says whether a replica is behind. A replica in the ISR is never behind,
since it fetches at or above the high watermark. So acks=all never waits for a response, a
connection or a turn of the loop that also carries the megabytes of a replica that catches up.
Source: R-REP2, R-REP3.

Throttles replication on this broker, both what it sends as leader and what it fetches as
follower.

Only replicas that are named, and that are not in sync, wait; those in sync neither wait nor count,
so that a throttle never makes an acks=all wait. Source: R-CTL8, KIP-73.
"""

import enum
from collections.abc import Callable

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.replication.leader_epochs import NONE_THROTTLED, ReplicationQuota
from storage_engine.protocol.apis.fetch import FetchPartition

CHANNEL = "fetch"
CATCH_UP_CHANNEL = "catch-up"
DURABLE_CHANNEL = "durable fetch"
"""The connection for partitions that are flushed before a fetch acknowledges them."""
DURABLE_CATCH_UP_CHANNEL = "durable catch-up"


class FollowerState(enum.Enum):
    """Whether the replica is behind, by the leader's last answer."""

    UNKNOWN = "unknown"
    BEHIND = "behind"
    """The replica lacks committed records."""
    CAUGHT_UP = "caught up"


class Followed:
    """A partition that is being followed."""

    __slots__ = (
        "asked",
        "behind_records",
        "is_full",
        "partition",
        "progress",
        "refusals",
        "resume_ms",
        "was_damaged",
    )

    def __init__(
        self, partition: HostedPartition, progress: FollowerState = FollowerState.UNKNOWN
    ) -> None:
        self.partition = partition
        self.progress = progress
        self.behind_records = 0
        """The number of committed records that the replica lacked at the last answer."""
        self.asked: FetchPartition | None = None
        """The entry in the fetches of its channel; None where they don't name it (yet)."""
        self.is_full = False
        """True when there was no space for the last records."""
        self.was_damaged = False
        """True when the last records were bad; the next fetch reports it to the leader."""
        self.refusals = 0
        """How often in a row the leader has answered that it does not lead, or not in this epoch.
        """
        self.resume_ms = 0
        """The partition is not fetched before this time, because the leader answered with an error.
        """

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition

    @property
    def is_caught_up(self) -> bool:
        """Whether it held all committed records at the last answer."""
        return self.progress is FollowerState.CAUGHT_UP

    @property
    def channel(self) -> str:
        """The channel over which it is to be fetched next."""
        is_durable = self.partition.config.flush_before_ack
        if self.progress is FollowerState.BEHIND:
            return DURABLE_CATCH_UP_CHANNEL if is_durable else CATCH_UP_CHANNEL
        return DURABLE_CHANNEL if is_durable else CHANNEL

    @property
    def has_changed(self) -> bool:
        """Whether the fetches don't name it, or its log changed by other means than they."""
        asked, replica_log = self.asked, self.partition.log
        return (
            asked is None
            or asked.fetch_offset != replica_log.log_end_offset
            or asked.log_start_offset != replica_log.log_start_offset
        )

    def wanted(self, max_bytes: int) -> FetchPartition:
        """The entry for this partition in the next fetch."""
        partition = self.partition
        replica_log = partition.log
        return FetchPartition(
            topic=partition.topic_partition.topic,
            partition=partition.topic_partition.partition,
            fetch_offset=replica_log.log_end_offset,
            partition_max_bytes=max_bytes,
            current_leader_epoch=partition.leader_epoch,
            last_fetched_epoch=replica_log.latest_epoch,
            log_start_offset=replica_log.log_start_offset,
            was_damaged=self.was_damaged,
        )


Rate = Callable[[], int]


class ReplicationThrottle:
    """The throttle of both directions. The rates are read each time, because they can change at run
    time."""

    def __init__(
        self, broker_id: int, *, clock: Clock, leader_rate: Rate, follower_rate: Rate
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._leader_rate = leader_rate
        self._follower_rate = follower_rate
        self._sending = ReplicationQuota(leader_rate())
        self._taking = ReplicationQuota(follower_rate())

    # --- as leader ---

    def holds_back(self, partition: HostedPartition, follower: int) -> bool:
        """Whether a follower's fetch gets no records of this partition now."""
        if not self.counts_sent(partition, follower):
            return False
        self._sending.bytes_per_second = self._leader_rate()
        return self._sending.delay_ms(now_ms=self._clock.monotonic_ms()) > 0

    def counts_sent(self, partition: HostedPartition, follower: int) -> bool:
        """Whether the bytes sent to this follower for the partition count for the throttle."""
        config = partition.config
        if config.leader_throttled is NONE_THROTTLED:
            return False
        leader = partition.leader
        return (
            config.leader_throttled.covers(partition.topic_partition.partition, self._broker_id)
            and leader is not None
            and follower not in leader.isr.maximal
        )

    def sent(self, size_bytes: int) -> None:
        self._sending.record(size_bytes, now_ms=self._clock.monotonic_ms())

    # --- as follower ---

    def pause_ms(self, partition: HostedPartition, *, in_sync: bool) -> int:
        """How long not to fetch this partition, in ms; 0 when it may be fetched."""
        if in_sync or not self._is_taking_throttled(partition):
            return 0
        self._taking.bytes_per_second = self._follower_rate()
        return self._taking.delay_ms(now_ms=self._clock.monotonic_ms())

    def took(self, partition: HostedPartition, size_bytes: int, *, in_sync: bool) -> None:
        if not in_sync and self._is_taking_throttled(partition):
            self._taking.record(size_bytes, now_ms=self._clock.monotonic_ms())

    def _is_taking_throttled(self, partition: HostedPartition) -> bool:
        return partition.config.follower_throttled.covers(
            partition.topic_partition.partition, self._broker_id
        )
