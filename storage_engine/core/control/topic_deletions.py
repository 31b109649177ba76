"""Topics that are being deleted, and topics that others have removed.

Rule: a topic is gone when every broker that held a replica has said so, and dead ones are waited
for; then its nodes are removed, and its record goes. A request that can't be carried out is taken
away: left behind, it would delete a later topic of that name. Source: R-CTL6.
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
    """The deletions of one controller; which topics are in deletion stands in their records."""

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
        """Unreadable topics whose deletion was asked for: it begins when they can be read."""

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
        """Some of the topics whose deletion was postponed may be known by now, or be gone."""
        decided = self._postponed & (event.topics.keys() | event.absent)
        self._postponed -= decided
        return self.request(sorted(decided))

    def _begin(self, topic: str) -> None:
        record = self._cluster.topics[topic]
        record.deleting = True
        self._reassignments.topic_deleting(record)
        self._deliveries.stopping.add(topic)
        for partition in record.partitions.values():
            # Whatever a read of its state brings, nothing is decided on it any more.
            partition.reading = False
            self._cluster.dirty.discard(partition.name)
            for replica in partition.assignment.replicas:
                self._deliveries.stop_replica(replica, partition.name)
        for broker in self._cluster.brokers:
            self._deliveries.offer_stops(broker, topic)
        self._deliveries.removal_to_all(topic)

    def broker_came(self, broker: BrokerId) -> None:
        """It may hold replicas of the topics in deletion, from before it was gone."""
        for topic in self._deliveries.stopping:
            self._deliveries.offer_stops(broker, topic)

    def removed_by_others(self, topic: str) -> None:
        """Not by a deletion of ours: another topic has its name by now. What is owed to replicas of
        the old one, or known of it, is not meant for those of the new one."""
        for partition in self._cluster.topics[topic].partitions.values():
            self._reassignments.assignment_changed(partition, partition.assignment)
        self.deleted(topic)
        self._deliveries.removal_to_all(topic)

    def deleted(self, topic: str) -> None:
        """The topic's nodes are gone."""
        if self._cluster.topics.pop(topic, None) is not None:
            self._deliveries.forget_topic(topic)

    def finished(self) -> Iterator[DeleteTopicNodes]:
        """The topics whose replicas are all deleted."""
        for topic in sorted(self._deliveries.stopping):
            record = self._cluster.topics.get(topic)
            if record is None or any(p.is_busy for p in record.partitions.values()):
                continue
            if self._deliveries.take_stopped(topic):
                yield DeleteTopicNodes(topic=topic, partitions=tuple(sorted(record.partitions)))
