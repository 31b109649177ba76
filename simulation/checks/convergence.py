"""The check of liveness: the state that a cluster must reach once its faults are over.

The cluster reaches it by itself, without help, within the time that `run` gives it.

Producers go on meanwhile. Sooner or later all logs end alike at one moment, unless the producers
are fast and the network is slow. After ALIKE_MS a follower has caught up, therefore, when it has
all that its leader had one look before.
"""

from simulation.checks.checkers import DELETIONS_PATH, Checker
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

ALIKE_MS = 15_000
"""The time in which all logs of a partition have to end alike at one check."""


class Convergence:
    """Looks at a cluster again and again, until it has converged."""

    def __init__(self, cluster: SimulatedCluster, checker: Checker) -> None:
        self._cluster = cluster
        self._checker = checker
        self._alike_until_ms = cluster.loop.now_ms + ALIKE_MS
        self._ends: dict[TopicPartition, int] = {}
        """The end of each partition's longest log at the check before."""

    def open_ends(self) -> list[str]:
        """Return what is still missing; nothing when the cluster has converged."""
        zookeeper = self._cluster.zookeeper
        topics = {}
        for topic in zookeeper.children(TopicZNode.PARENT):
            data = zookeeper.data(TopicZNode.path(topic))
            assert data is not None
            assignment = TopicZNode.decode(topic, data).assignment
            topics[topic] = {TopicPartition(topic, p): each for p, each in assignment.items()}
        found = self._open_ends_of_brokers(sorted(topics))
        ends: dict[TopicPartition, int] = {}
        for topic, partitions in topics.items():
            if topic in self._checker.unwatched:
                continue
            for tp, assigned in partitions.items():
                found += self._open_ends_of(tp, assigned)
                of_replicas = [
                    self._checker.record(tp).copy(replica).end_offset
                    for replica in self._checker.record(tp).assigned
                ]
                shortest, ends[tp] = min(of_replicas, default=0), max(of_replicas, default=0)
                if shortest < self._wanted_end(tp, ends[tp]):
                    found.append(f"the replicas of {tp} end between {shortest} and {ends[tp]}")
        self._ends = ends
        return found

    def _wanted_end(self, tp: TopicPartition, longest: int) -> int:
        if self._cluster.loop.now_ms < self._alike_until_ms:
            return longest
        return min(longest, self._ends.get(tp, longest))

    def _open_ends_of_brokers(self, topics: list[str]) -> list[str]:
        brokers = [broker for broker in self._cluster.brokers if broker.serving]
        loaded = [
            broker.id
            for broker in brokers
            if (acting := broker.parts.cluster.controller.acting) is not None and acting.loaded
        ]
        found = [] if len(loaded) == 1 else [f"controllers that have loaded everything: {loaded}"]
        deleting = self._cluster.zookeeper.children(DELETIONS_PATH)
        found += [f"topic {topic} is still being deleted" for topic in deleting]
        found += [f"broker {b.id} is not up" for b in self._cluster.brokers if b not in brokers]
        for broker in brokers:
            if broker.broker_epoch == -1:
                found.append(f"broker {broker.id} is fenced or not registered")
            for tp in broker.logs.logs:
                if tp.topic not in topics:
                    found.append(f"broker {broker.id} still has {tp}, which was deleted")
                elif tp.topic in self._checker.unwatched:
                    continue
                elif broker.id not in self._checker.record(tp).assigned:
                    found.append(f"broker {broker.id} still has {tp}, which is on others")
            known = sorted(broker.metadata.topics())
            if known != topics:
                found.append(f"broker {broker.id} knows the topics {known}, not {topics}")
        return found

    def _open_ends_of(self, tp: TopicPartition, assigned: tuple[int, ...]) -> list[str]:
        record = self._checker.record(tp)
        found = [f"{tp} is on the move"] if record.move is not None else []
        path = PartitionStateZNode.path(tp.topic, tp.partition)
        data = self._cluster.zookeeper.data(path)
        if data is None:
            return [*found, f"{tp} has no leader yet"]
        state = PartitionStateZNode.decode(tp.topic, tp.partition, data)
        if state.leader == -1:
            return [*found, f"{tp} has no leader"]
        if set(state.isr) != set(assigned):
            return [*found, f"{tp} has the ISR {list(state.isr)} of {list(assigned)}"]
        newest = state.leader, state.leader_epoch
        for broker in self._cluster.brokers:
            partition = broker.replicas.get(tp) if broker.serving else None
            if broker.id in assigned:
                if partition is None:
                    found.append(f"broker {broker.id} does not have {tp}")
                elif (partition.leader_id, partition.leader_epoch) != newest:
                    found.append(f"broker {broker.id} has not heard of the newest leader of {tp}")
            if broker.serving:
                known = (broker.metadata.partitions(tp.topic) or {}).get(tp.partition)
                if known is None or (known.leader, known.leader_epoch) != newest:
                    found.append(f"broker {broker.id} tells clients of an old leader of {tp}")
        if not record.unclean and not all(
            record.copy(replica).holds(record.committed) for replica in assigned
        ):
            found.append(f"a replica of {tp} lacks what is committed")
        return found
