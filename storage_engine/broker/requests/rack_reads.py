"""Lets consumers read from an in-sync replica in their own rack.

    consumer -> leader: fetch with a rack       -> "read from replica 3", no records
    consumer -> replica 3: the same fetch       -> records below its own high watermark
    replica 3 can't serve it (any more)         -> NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE:
                                                   the consumer returns to the leader

A follower serves only while it is surely in sync: in the ISR by the controller's last metadata, in
touch with its leader and with ZooKeeper. It never says that an offset is out of range: only the
leader knows, and a client that believes a follower would start over. Source: KIP-392, R-REP4,
R-REP5.
"""

from collections.abc import Callable

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import Clock

NO_PREFERENCE = -1
"""In place of a replica: read from the leader."""


class RackReads:
    """Chooses the replica that answers a consumer with a rack."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        rack: str | None,
        metadata: MetadataCache,
        clock: Clock,
        lag_max_ms: int,
        has_lease: Callable[[], bool],
        leader_heard_ms: Callable[[TopicPartition], int | None],
    ) -> None:
        """`leader_heard_ms`: the monotonic time in ms of the last answer of a followed partition's
        leader."""
        self._broker_id = broker_id
        self._rack = rack
        self._metadata = metadata
        self._clock = clock
        self._lag_max_ms = lag_max_ms
        self._has_lease = has_lease
        self._leader_heard_ms = leader_heard_ms

    def preferred(self, partition: HostedPartition, rack: str, fetch_offset: int) -> int:
        """For a partition that this broker leads: the in-sync replica in `rack` with the most
        records, among those that have `fetch_offset`; NO_PREFERENCE for the leader itself."""
        leader = partition.leader
        if leader is None or rack == self._rack:
            return NO_PREFERENCE
        in_sync = self._in_sync(partition.topic_partition)
        candidates = [
            (leader.follower_end_offset(replica), -replica)
            for replica in leader.isr.members
            if replica in in_sync and self._is_in(replica, rack)
        ]
        candidates = [
            (end_offset, negated)
            for end_offset, negated in candidates
            if partition.follower_log_starts.get(-negated, 0) <= fetch_offset <= end_offset
        ]
        return -max(candidates)[1] if candidates else NO_PREFERENCE

    def _is_in(self, replica: int, rack: str) -> bool:
        broker = self._metadata.brokers.get(BrokerId(replica))
        return broker is not None and broker.rack == rack

    def _in_sync(self, tp: TopicPartition) -> frozenset[int]:
        state = (self._metadata.partitions(tp.topic) or {}).get(tp.partition)
        return frozenset() if state is None else frozenset(state.isr)

    def check_follower(self, partition: HostedPartition, rack: str, fetch_offset: int) -> None:
        """Raises KafkaError when this follower must not, or can't, answer a consumer."""
        tp = partition.topic_partition
        if rack != self._rack or not self._may_serve(partition):
            raise KafkaError(f"this broker does not lead {tp}", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = partition.log
        if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
            raise KafkaError(
                f"this replica of {tp} does not have offset {fetch_offset}",
                ErrorCode.OFFSET_NOT_AVAILABLE,
            )

    def _may_serve(self, partition: HostedPartition) -> bool:
        tp = partition.topic_partition
        if partition.role is not Role.FOLLOWER or self._broker_id not in self._in_sync(tp):
            return False
        heard_ms = self._leader_heard_ms(tp)
        return (
            heard_ms is not None
            and self._clock.monotonic_ms() - heard_ms <= self._lag_max_ms
            and self._has_lease()
        )
