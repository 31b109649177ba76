"""Deletes topics, and handles topics that others removed from ZooKeeper.

A topic is deleted when every broker that held a replica has confirmed it, dead brokers included;
then its nodes are removed, and its record. A request that can't be carried out is removed, since it
would delete a later topic of that name. Source: R-CTL6.
"""

from collections.abc import Iterable, Iterator

from storage_engine.core.control.controlled_cluster import ControlledCluster
from storage_engine.core.control.controller_events import (
    DeleteTopicNodes,
    DropDeletionRequests,
    Effect,
    TopicsRead,
)
from storage_engine.core.control.deliveries import Deliveries
from storage_engine.core.control.reassignments import Reassignments
from storage_engine.core.ids import BrokerId


class TopicDeletions:
    """The deletions of one controller; the topics' records say which are in deletion."""

    def __init__(
        self,
        cluster: ControlledCluster,
        deliveries: Deliveries,
        reassignments: Reassignments,
        *,
        enabled: bool,
    ) -> None:
        self._cluster = cluster
        self._deliveries = deliveries
        self._reassignments = reassignments
        self._enabled = enabled
        self._postponed: set[str] = set()
        """Unreadable topics whose deletion was requested: it begins when they can be read."""

    def request(self, topics: Iterable[str]) -> list[Effect]:
        cluster = self._cluster
        void = []
        for topic in topics:
            if cluster.is_deleting(topic):
                continue
            is_known = topic in cluster.topics
            if self._enabled and not is_known and topic in cluster.unreadable_topics:
                self._postponed.add(topic)
            elif self._enabled and is_known:
                self._begin(topic)
            else:
                void.append(topic)
        return [DropDeletionRequests(topics=tuple(void))] if void else []

    def topics_read(self, event: TopicsRead) -> list[Effect]:
        """Begin postponed deletions of topics that could be read, and drop those of topics that are
        gone."""
        decided = self._postponed & (event.topics.keys() | event.absent)
        self._postponed -= decided
        return self.request(sorted(decided))

    def _begin(self, topic: str) -> None:
        record = self._cluster.topics[topic]
        record.deleting = True
        self._reassignments.topic_deleting(record)
        self._deliveries.stopping.add(topic)
        for partition in record.partitions.values():
            # Whatever the read of its state returns, it has no more elections.
            partition.reading = False
            self._cluster.dirty.pop(partition.name, None)
            for replica in partition.assignment.replicas:
                self._deliveries.stop_replica(replica, partition.name)
        for broker in self._cluster.brokers:
            self._deliveries.offer_stops(broker, topic)
        self._deliveries.removal_to_all(topic)

    def broker_came(self, broker: BrokerId) -> None:
        """Have a broker that has come (back) delete what it may hold of the topics in deletion."""
        for topic in self._deliveries.stopping:
            self._deliveries.offer_stops(broker, topic)

    def removed_by_others(self, topic: str) -> None:
        """Forget a topic that somebody else removed: another topic has its name by now, and orders
        for replicas of the old one must not reach those of the new one."""
        for partition in self._cluster.topics[topic].partitions.values():
            self._reassignments.assignment_changed(partition, partition.assignment)
        self.deleted(topic)
        self._deliveries.removal_to_all(topic)

    def deleted(self, topic: str) -> None:
        """Forget a topic whose nodes are gone."""
        if self._cluster.topics.pop(topic, None) is not None:
            self._deliveries.forget_topic(topic)

    def finished(self) -> Iterator[DeleteTopicNodes]:
        """Return the topics whose replicas are all deleted."""
        for topic in sorted(self._deliveries.stopping):
            record = self._cluster.topics.get(topic)
            if record is None or any(p.is_busy for p in record.partitions.values()):
                continue
            if self._deliveries.take_stopped(topic):
                yield DeleteTopicNodes(topic=topic, partitions=tuple(sorted(record.partitions)))
