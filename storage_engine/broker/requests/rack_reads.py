"""Lets consumers read from an in-sync replica in their own rack.

    consumer -> leader: fetch with a rack       -> "read from replica 3", no records
    consumer -> replica 3: the same fetch       -> records below its own high watermark
    replica 3 can't serve it (any more)         -> NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE:
                                                   the consumer returns to the leader

A follower serves only while it is surely in sync: in the ISR by the controller's last metadata, in
touch with its leader and with ZooKeeper. It never says that an offset is out of range: only the
leader knows, and a client that believes a follower would start over. Source: KIP-392, R-REP4,
R-REP5.

Who leads a partition that this broker refused to serve, for the clients of a listener.

UpdateMetadata comes before LeaderAndIsr, and a replica may know more than the metadata: of the two
the later leader epoch counts. A leader that can't be told is left out: this broker itself, which
may have lost its lease, one that is dead or in doubt, and one without that listener. Source:
KIP-951, R-REP12.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass

from storage_engine.broker.cluster.leader_doubts import LeaderDoubts
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.replicas.hosted_partition import HostedPartition, Role
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.protocol.apis.current_leaders import CurrentLeader, LeaderNode
from storage_engine.protocol.apis.fetch import FetchPartitionResponse
from storage_engine.protocol.apis.produce import ProducePartitionResponse, ProduceResponse

NO_PREFERENCE = -1
"""Read from the leader."""


class RackReads:
    """Chooses the replica that answers a consumer which names its rack."""

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
        """`leader_heard_ms`: when the leader of a partition that is followed here answered last, in
        monotonic ms."""
        self._broker_id = broker_id
        self._rack = rack
        self._metadata = metadata
        self._clock = clock
        self._lag_max_ms = lag_max_ms
        self._has_lease = has_lease
        self._leader_heard_ms = leader_heard_ms

    def preferred(self, partition: HostedPartition, rack: str, fetch_offset: int) -> int:
        """For a partition that this broker leads: the replica in `rack` with the most records,
        among those that are in sync and have `fetch_offset`; NO_PREFERENCE for the leader itself.
        """
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
        """Raises KafkaError where this follower must not, or can't, answer a consumer."""
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


_MOVED = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_OLD_EPOCH = int(ErrorCode.FENCED_LEADER_EPOCH)
_NO_REPLICA = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Of a partition whose leader is known elsewhere it becomes NOT_LEADER_OR_FOLLOWER, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentLeaders:
    """The leaders as one broker knows them."""

    broker_id: BrokerId
    metadata: MetadataCache
    replicas: ReplicaManager
    doubts: LeaderDoubts

    def of(self, tp: TopicPartition, listener: str) -> CurrentLeader | None:
        """None where nobody can be told."""
        known = (self.metadata.partitions(tp.topic) or {}).get(tp.partition)
        hosted = self.replicas.get(tp)
        if known is None:
            return None
        leader, epoch = known.leader, int(known.leader_epoch)
        if hosted is not None and hosted.leader_epoch > epoch and hosted.topic_id == known.topic_id:
            leader, epoch = BrokerId(hosted.leader_id), int(hosted.leader_epoch)
        if leader == self.broker_id or leader in self.doubts.current():
            return None
        return None if self._node(leader, listener) is None else (leader, epoch)

    def _node(self, broker_id: int, listener: str) -> LeaderNode | None:
        broker = self.metadata.brokers.get(BrokerId(broker_id))
        found = None if broker is None else broker.at(listener)
        if found is None:
            return None
        return LeaderNode(found.broker_id, found.host, found.port, found.rack)

    def nodes(
        self, leaders: Iterable[CurrentLeader | None], listener: str
    ) -> tuple[LeaderNode, ...]:
        """Where the leaders are, each once."""
        found = (self._node(each, listener) for each in sorted({x[0] for x in leaders if x}))
        return tuple(node for node in found if node is not None)

    def in_fetch(
        self, answers: Iterable[FetchPartitionResponse], listener: str
    ) -> Generator[None, None, list[FetchPartitionResponse]]:
        """The answers, by the names of topics, each refusal with the leader; in steps."""
        told = []
        for answer in answers:
            code = answer.error_code
            if code in (_MOVED, _OLD_EPOCH, _NO_REPLICA):
                leader = self.of(TopicPartition(answer.topic, answer.partition), listener)
                if leader is not None:
                    code = _MOVED if code == _NO_REPLICA else code
                    answer = answer._replace(error_code=code, current_leader=leader)
            told.append(answer)
            yield None
        return told

    def in_produce(
        self, answers: Sequence[ProducePartitionResponse], listener: str
    ) -> ProduceResponse:
        """The response, each refusal with the leader."""
        told = []
        for answer in answers:
            if answer.error_code in (_MOVED, _NO_REPLICA):
                leader = self.of(TopicPartition(answer.topic, answer.partition), listener)
                if leader is not None:
                    answer = answer._replace(error_code=_MOVED, current_leader=leader)
            told.append(answer)
        return ProduceResponse(
            told, nodes=self.nodes((each.current_leader for each in told), listener)
        )
