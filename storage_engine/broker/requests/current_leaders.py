"""The leaders of partitions that this broker refused to serve, for the clients of a listener.

UpdateMetadata comes before LeaderAndIsr, and a replica may know more than the metadata: of the two
the later leader epoch counts. A leader is not named if it is this broker itself, which may have
lost its lease, if it is dead or in doubt, or if it lacks that listener. Source:
KIP-951, R-REP12.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

from storage_engine.broker.cluster.leader_doubts import LeaderDoubts
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.protocol.apis.current_leaders import CurrentLeader, LeaderNode
from storage_engine.protocol.apis.fetch import FetchPartitionResponse
from storage_engine.protocol.apis.produce import ProducePartitionResponse, ProduceResponse

_MOVED = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)

_OLD_EPOCH = int(ErrorCode.FENCED_LEADER_EPOCH)

_NO_REPLICA = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Replaced by NOT_LEADER_OR_FOLLOWER where the partition's leader is known, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentLeaders:
    """The leaders as one broker knows them."""

    broker_id: BrokerId
    metadata: MetadataCache
    replicas: ReplicaManager
    doubts: LeaderDoubts

    def of(self, tp: TopicPartition, listener: str) -> CurrentLeader | None:
        """The leader and its epoch; None where no leader can be named."""
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
        """The addresses of the leaders, each once."""
        found = (self._node(each, listener) for each in sorted({x[0] for x in leaders if x}))
        return tuple(node for node in found if node is not None)

    def in_fetch(
        self, answers: Iterable[FetchPartitionResponse], listener: str
    ) -> Generator[None, None, list[FetchPartitionResponse]]:
        """The answers, named by topic, with the leader in each refusal; in steps."""
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
        """The response, with the leader in each refusal."""
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
