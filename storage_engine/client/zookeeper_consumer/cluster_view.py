"""The members of a group according to their znodes, and the partitions of a member.

None while something has yet to be read. Source: R-CLI3.
"""

from collections.abc import Mapping
from functools import partial

from storage_engine.client.zookeeper_consumer.assignment import assign_topic
from storage_engine.client.zookeeper_consumer.brokers_view import BrokersView
from storage_engine.client.zookeeper_consumer.node_view import NodeView
from storage_engine.core.ids import TopicPartition
from storage_engine.zookeeper.consumer_znodes import ConsumerGroupPaths, ConsumerIdZNode


class ClusterView:
    """The group's znodes, read with watches; the owner computes its part again when one fires."""

    def __init__(self, nodes: NodeView, paths: ConsumerGroupPaths, brokers: BrokersView) -> None:
        self._nodes = nodes
        self._paths = paths
        self.brokers = brokers

    @property
    def changes(self) -> int:
        """A number that grows whenever a plan may be another one."""
        return self._nodes.changes + self.brokers.changes

    def plan(self, consumer: str, wanted: Mapping[str, int]) -> dict[TopicPartition, int] | None:
        """The partitions that `consumer` gets, each with the number of its stream."""
        members = self._members()
        # All is asked for before anything is waited for.
        led = {topic: self.brokers.partitions(topic) for topic in wanted}
        if members is None or consumer not in members:
            return None
        planned: dict[TopicPartition, int] = {}
        for topic, partitions in led.items():
            if partitions is None:
                return None
            streams = {
                member: counts[topic] for member, counts in members.items() if topic in counts
            }
            if consumer not in streams:
                return None
            for partition, stream in assign_topic(consumer, streams, partitions).items():
                planned[TopicPartition(topic, partition)] = stream
        return planned

    def _members(self) -> dict[str, Mapping[str, int]] | None:
        listed = self._nodes.children(self._paths.ids)
        if listed is None:
            return None
        nodes = {
            name: self._nodes.read(path, partial(ConsumerIdZNode.decode, path))
            for name in listed.children
            for path in [self._paths.id(name)]
        }
        if not all(known for known, _ in nodes.values()):
            return None
        return {name: node.streams for name, (_, node) in nodes.items() if node is not None}
