"""The brokers, topics and members of a group according to their znodes, and the partitions of a
member.

None while something has yet to be read; what others wrote amiss counts as nothing, and is logged.
Source: R-CLI3, R-CTL10.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from storage_engine.client.addresses import address_text
from storage_engine.client.zookeeper_consumer.assignment import LedPartition, assign_topic
from storage_engine.client.zookeeper_consumer.node_view import NodeView, Seen
from storage_engine.core.ids import NO_LEADER, TopicPartition, topic_name_problem
from storage_engine.zookeeper.consumer_znodes import ConsumerGroupPaths, ConsumerIdZNode
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.broker_znodes import BrokerIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

log = logging.getLogger(__name__)

Decoded = TypeVar("Decoded")


class ClusterView:
    """The group's znodes, read with watches; the owner computes its part again when one fires."""

    def __init__(self, nodes: NodeView, paths: ConsumerGroupPaths, protocol: str) -> None:
        """`protocol`: the security protocol by which brokers are read from."""
        self._protocol = protocol
        self._nodes = nodes
        self._paths = paths
        self._decoded: dict[str, tuple[Seen, Any]] = {}
        """The last decoded value of each path, and the bytes that it was decoded from."""

    def topics(self) -> tuple[str, ...] | None:
        """Others may have made nodes with names that no topic can have: they are none."""
        seen = self._nodes.children(TopicZNode.PARENT)
        if seen is None:
            return None
        return tuple(name for name in seen.children if topic_name_problem(name) is None)

    def addresses(self) -> str | None:
        """`host:port,…` of the live brokers that have a listener for the security protocol; empty
        where there is none."""
        listed = self._nodes.children(BrokerIdZNode.PARENT)
        if listed is None:
            return None
        nodes = {
            path: self._read(path, _decoder(BrokerIdZNode.decode, broker))
            for broker in BrokerIdZNode.ids(listed.children)
            for path in [BrokerIdZNode.path(broker)]
        }
        if not all(known for known, _ in nodes.values()):
            return None
        return ",".join(
            sorted(
                address_text(*address)
                for path, (_, node) in nodes.items()
                if node is not None and self._is_held(path)
                if (address := node.address_for(self._protocol)) is not None
            )
        )

    def _is_held(self, path: str) -> bool:
        """Whether a session holds the znode: a persistent znode that somebody wrote is no live
        broker."""
        seen = self._nodes.data(path)
        return seen is not None and seen.owner != 0

    def plan(self, consumer: str, wanted: Mapping[str, int]) -> dict[TopicPartition, int] | None:
        """The partitions that `consumer` gets, each with the number of its stream."""
        members = self._members()
        # All is asked for before anything is waited for.
        led = {topic: self._partitions(topic) for topic in wanted}
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
            name: self._read(path, _decoder(ConsumerIdZNode.decode, path))
            for name in listed.children
            for path in [self._paths.id(name)]
        }
        if not all(known for known, _ in nodes.values()):
            return None
        return {name: node.streams for name, (_, node) in nodes.items() if node is not None}

    def _partitions(self, topic: str) -> list[LedPartition] | None:
        known, node = self._read(TopicZNode.path(topic), _decoder(TopicZNode.decode, topic))
        if not known:
            return None
        partitions = [] if node is None else list(node.assignment)
        states = {
            partition: self._read(
                PartitionStateZNode.path(topic, partition), _state_decoder(topic, partition)
            )
            for partition in partitions
        }
        if not all(known for known, _ in states.values()):
            return None
        return [
            LedPartition(NO_LEADER if state is None else state.leader, partition)
            for partition, (_, state) in states.items()
        ]

    def _read(self, path: str, decode: Callable[[bytes], Decoded]) -> tuple[bool, Decoded | None]:
        """(whether it is known, what it holds; None where there is nothing that can be read)."""
        seen = self._nodes.data(path)
        if seen is None or not seen.there:
            return seen is not None, None
        from_what, decoded = self._decoded.get(path, (None, None))
        if from_what is not seen:
            try:
                decoded = decode(seen.data)
            except ZnodeFormatError as error:
                log.warning("%s", error)
                decoded = None
            self._decoded[path] = seen, decoded
        return True, decoded


Name = TypeVar("Name", str, int)


def _decoder(decode: Callable[[Name, bytes], Decoded], name: Name) -> Callable[[bytes], Decoded]:
    return lambda data: decode(name, data)


def _state_decoder(topic: str, partition: int) -> Callable[[bytes], PartitionStateZNode]:
    return lambda data: PartitionStateZNode.decode(topic, partition, data)
