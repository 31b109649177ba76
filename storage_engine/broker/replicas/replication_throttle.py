"""Throttles replication on this broker, both what it sends as leader and what it fetches as
follower.

Only replicas that are named, and that are not in sync, wait; those in sync neither wait nor count,
so that a throttle never makes an acks=all wait. Source: R-CTL8, KIP-73.
"""

from collections.abc import Callable

from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.ports import Clock
from storage_engine.core.replication.leader_epochs import NONE_THROTTLED, ReplicationQuota

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
        """Whether a follower's fetch gets nothing of this partition now."""
        if not self.counts_sent(partition, follower):
            return False
        self._sending.bytes_per_second = self._leader_rate()
        return self._sending.delay_ms(now_ms=self._clock.monotonic_ms()) > 0

    def counts_sent(self, partition: HostedPartition, follower: int) -> bool:
        """Whether what this follower gets of the partition is under the throttle."""
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
        """How long not to fetch this partition; 0 when it may be fetched."""
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
