"""Six simulated brokers and a partition that is moved from {1, 2, 3} to {4, 5, 6}."""

from collections.abc import Sequence
from pathlib import Path

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.protocol.messages import (
    alter_partition_reassignments,
    create_topics,
    elect_leaders,
    list_partition_reassignments,
)
from storage_engine.zookeeper.admin_znodes import ReassignPartitionsZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

TP = TopicPartition("t", 0)

Step = tuple[tuple[int, ...], int, frozenset[int]]
"""Assigned replicas, leader, ISR."""


class Moving(SimulatedCluster):
    """A cluster that records what ZooKeeper says of `TP`."""

    def __init__(self, folder: Path, count: int = 6, **settings: str) -> None:
        super().__init__(folder, count, **settings)
        self.steps: list[Step] = []
        self.zookeeper.on_write = self._record

    def _record(self, _path: str, _old: bytes | None, _new: bytes | None) -> None:
        paths = (TopicZNode.path(TP.topic), PartitionStateZNode.path(TP.topic, TP.partition))
        if any(self.zookeeper.data(path) is None for path in paths):
            return
        state = self.state(TP)
        step = (self.assigned(TP), state.leader, frozenset(state.isr))
        if not self.steps or self.steps[-1] != step:
            self.steps.append(step)

    def topic(self, name: str = "t") -> TopicZNode:
        data = self.zookeeper.data(TopicZNode.path(name))
        assert data is not None
        return TopicZNode.decode(name, data)

    def assigned(self, tp: TopicPartition) -> tuple[int, ...]:
        return tuple(self.topic(tp.topic).assignment[tp.partition])

    def create(self, *replicas: Sequence[int], topic: str = "t") -> None:
        row = create_topics.CreateTopicsRequest.CreatableTopic
        request = create_topics.CreateTopicsRequest(
            topics=[
                row(
                    name=topic,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        row.CreatableReplicaAssignment(partition_index=p, broker_ids=list(brokers))
                        for p, brokers in enumerate(replicas)
                    ],
                    configs=[],
                )
            ],
            timeout_ms=30_000,
            validate_only=False,
        )
        answer = self.answer(self.ask_controller(create_topics.API, 5, request))
        assert answer.topics[0].error_code == 0, answer

    def ask_by_node(self, targets: dict[TopicPartition, tuple[int, ...]]) -> None:
        """As another program would."""
        node = ReassignPartitionsZNode(
            target_replicas={tp: tuple(map(BrokerId, brokers)) for tp, brokers in targets.items()}
        )
        self.zookeeper.put(ReassignPartitionsZNode.PATH, node.encode())

    def alter(self, targets: dict[TopicPartition, Sequence[int] | None]) -> dict[int, ErrorCode]:
        """By the API; partition number -> error."""
        row = alter_partition_reassignments.AlterPartitionReassignmentsRequest.ReassignableTopic
        request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            timeout_ms=30_000,
            topics=[
                row(
                    name=tp.topic,
                    partitions=[
                        row.ReassignablePartition(
                            partition_index=tp.partition,
                            replicas=None if brokers is None else list(brokers),
                        )
                    ],
                )
                for tp, brokers in targets.items()
            ],
        )
        answer = self.answer(self.ask_controller(alter_partition_reassignments.API, 0, request))
        assert answer.error_code == 0
        return {
            item.partition_index: ErrorCode.of(item.error_code)
            for topic in answer.responses
            for item in topic.partitions
        }

    def ongoing(self) -> dict[int, tuple[list[int], list[int], list[int]]]:
        """Partition number -> replicas, adding, removing."""
        request = list_partition_reassignments.ListPartitionReassignmentsRequest(
            timeout_ms=30_000, topics=None
        )
        answer = self.answer(self.ask_controller(list_partition_reassignments.API, 0, request))
        return {
            item.partition_index: (item.replicas, item.adding_replicas, item.removing_replicas)
            for topic in answer.topics
            for item in topic.partitions
        }

    def elect(self, *partitions: int, unclean: bool = False) -> dict[int, ErrorCode]:
        request = elect_leaders.ElectLeadersRequest(
            election_type=int(unclean),
            topic_partitions=[
                elect_leaders.ElectLeadersRequest.TopicPartitions(
                    topic="t", partitions=list(partitions)
                )
            ],
            timeout_ms=30_000,
        )
        answer = self.answer(self.ask_controller(elect_leaders.API, 2, request))
        return {
            item.partition_id: ErrorCode.of(item.error_code)
            for topic in answer.replica_election_results
            for item in topic.partition_result
        }

    def is_done(self, target: tuple[int, ...], tp: TopicPartition = TP) -> bool:
        node = self.topic(tp.topic)
        return (
            tuple(node.assignment[tp.partition]) == target
            and not node.target_replicas
            and self.zookeeper.data(ReassignPartitionsZNode.PATH) is None
        )

    def wait_done(
        self, target: tuple[int, ...], tp: TopicPartition = TP, *, limit_ms: int = 120_000
    ) -> None:
        self.loop.run_until(lambda: self.is_done(target, tp), limit_ms=limit_ms)
        self.wait_in_sync(tp, *target)

    def holders(self, tp: TopicPartition = TP) -> set[int]:
        """Live brokers that have files of the partition."""
        return {broker.id for broker in self.brokers if broker.up and tp in broker.logs.logs}

    def contents(self, broker: int, tp: TopicPartition = TP) -> bytes:
        log = self[broker].logs.logs[tp]
        piece = log.reads.read(log.log_start_offset, max_bytes=1 << 20)
        return bytes(piece.view()) if piece is not None else b""
