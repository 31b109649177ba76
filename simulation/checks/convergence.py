"""The check of liveness: the state that a cluster must reach once its faults are over.

The cluster reaches it by itself, without help, within the time that `run` gives it.

Producers go on meanwhile. Sooner or later all logs end alike at one moment, unless the producers
are fast and the network is slow. After ALIKE_MS a follower has caught up, therefore, when it has
all that its leader had one look before.
"""

from simulation.checks.checkers import DELETIONS_PATH, Checker
from simulation.world.broker import SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

ALIKE_MS = 15_000
"""How long all logs of a partition have to end alike at one look."""


class Convergence:
    """Looks at a cluster again and again, until it has converged."""

    def __init__(self, cluster: SimulatedCluster, checker: Checker) -> None:
        self._cluster = cluster
        self._checker = checker
        self._alike_until_ms = cluster.loop.now_ms + ALIKE_MS
        self._ends: dict[TopicPartition, int] = {}
        """The end of each partition's longest log at the look before."""

    def open_ends(self) -> list[str]:
        """Return what is still missing; nothing when the cluster has converged."""
        found = _open_ends_beside_logs(self._cluster, self._checker)
        ends = {tp: self._ends_of(tp) for tp in _partitions(self._cluster)}
        for tp, (shortest, longest) in ends.items():
            if shortest < self._wanted_end(tp, longest):
                found.append(f"the replicas of {tp} end between {shortest} and {longest}")
        self._ends = {tp: longest for tp, (_, longest) in ends.items()}
        return found

    def _wanted_end(self, tp: TopicPartition, longest: int) -> int:
        if self._cluster.loop.now_ms < self._alike_until_ms:
            return longest
        return min(longest, self._ends.get(tp, longest))

    def _ends_of(self, tp: TopicPartition) -> tuple[int, int]:
        record = self._checker.record(tp)
        ends = [record.copy(replica).end_offset for replica in record.assigned]
        return min(ends, default=0), max(ends, default=0)


def _partitions(cluster: SimulatedCluster) -> list[TopicPartition]:
    found = []
    for topic in cluster.zookeeper.children(TopicZNode.PARENT):
        data = cluster.zookeeper.data(TopicZNode.path(topic))
        assert data is not None
        numbers = TopicZNode.decode(topic, data).assignment
        found += [TopicPartition(topic, number) for number in numbers]
    return found


def _open_ends_beside_logs(cluster: SimulatedCluster, checker: Checker) -> list[str]:
    """Return what is missing apart from the ends of logs."""
    found = _controllers(cluster)
    found += [f"broker {b.id} is fenced or not registered" for b in _absent(cluster)]
    topics = cluster.zookeeper.children(TopicZNode.PARENT)
    deleting = cluster.zookeeper.children(DELETIONS_PATH)
    found += [f"topic {topic} is still being deleted" for topic in deleting]
    for topic in topics:
        found += _topic(cluster, checker, topic)
    for broker in cluster.brokers:
        if not broker.serving:
            found.append(f"broker {broker.id} is not up")
            continue
        for tp in broker.logs.logs:
            if tp.topic not in topics:
                found.append(f"broker {broker.id} still has {tp}, which was deleted")
            elif broker.id not in checker.record(tp).assigned:
                found.append(f"broker {broker.id} still has {tp}, which is on others")
        known = set(broker.metadata.topics())
        if known != set(topics):
            found.append(f"broker {broker.id} knows the topics {sorted(known)}, not {topics}")
    return found


def _controllers(cluster: SimulatedCluster) -> list[str]:
    loaded = [
        broker.id
        for broker in cluster.brokers
        if broker.serving
        and (acting := broker.parts.cluster.controller.acting) is not None
        and acting.loaded
    ]
    return [] if len(loaded) == 1 else [f"controllers that have loaded everything: {loaded}"]


def _absent(cluster: SimulatedCluster) -> list[SimulatedBroker]:
    return [b for b in cluster.brokers if b.serving and b.broker_epoch == -1]


def _topic(cluster: SimulatedCluster, checker: Checker, topic: str) -> list[str]:
    found = []
    data = cluster.zookeeper.data(TopicZNode.path(topic))
    assert data is not None
    for partition, assigned in TopicZNode.decode(topic, data).assignment.items():
        tp = TopicPartition(topic, partition)
        if checker.record(tp).move is not None:
            found.append(f"{tp} is on the move")
        state_data = cluster.zookeeper.data(PartitionStateZNode.path(topic, partition))
        if state_data is None:
            found.append(f"{tp} has no leader yet")
            continue
        state = PartitionStateZNode.decode(topic, partition, state_data)
        if state.leader == -1:
            found.append(f"{tp} has no leader")
        elif set(state.isr) != set(assigned):
            found.append(f"{tp} has the ISR {list(state.isr)} of {list(assigned)}")
        else:
            found += _replicas(cluster, checker, tp, state, assigned)
    return found


def _replicas(
    cluster: SimulatedCluster,
    checker: Checker,
    tp: TopicPartition,
    state: PartitionStateZNode,
    assigned: tuple[int, ...],
) -> list[str]:
    found = []
    for replica in assigned:
        broker = cluster[replica]
        partition = broker.replicas.get(tp) if broker.serving else None
        if partition is None:
            found.append(f"broker {replica} does not have {tp}")
        elif (partition.leader_id, partition.leader_epoch) != (state.leader, state.leader_epoch):
            found.append(f"broker {replica} has not heard of the newest leader of {tp}")
    for broker in cluster.brokers:
        if broker.serving:
            known = (broker.metadata.partitions(tp.topic) or {}).get(tp.partition)
            if known is None or (known.leader, known.leader_epoch) != (
                state.leader,
                state.leader_epoch,
            ):
                found.append(f"broker {broker.id} tells clients of an old leader of {tp}")
    record = checker.record(tp)
    if not record.unclean and not all(
        record.copy(replica).holds(record.committed) for replica in assigned
    ):
        found.append(f"a replica of {tp} lacks what is committed")
    return found
