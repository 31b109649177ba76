"""Brokers, topics and partitions, as a group that meets in ZooKeeper needs them.

`RegisteredBrokers` reads the brokers' own znodes, where the group meets in the brokers' ZooKeeper.
`AskedBrokers` asks the brokers themselves: a secured cluster's ZooKeeper lets in brokers alone, so
that its consumers meet in another one. Leaders do not count there, for members that learn of them
at different times would not agree on who reads what. Source: R-CLI3, R-CTL10.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from storage_engine.client.addresses import Address, address_text
from storage_engine.client.cluster import Cluster
from storage_engine.client.loop import ClientLoop
from storage_engine.client.metadata import ClusterMetadata
from storage_engine.client.zookeeper_consumer.assignment import LedPartition
from storage_engine.client.zookeeper_consumer.node_view import NodeView
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import NO_LEADER, topic_name_problem
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

log = logging.getLogger(__name__)

_STOP_MS = 5_000


class RegisteredBrokers:
    """According to the brokers' znodes, read with watches, which tell of changes. None while
    something is not known yet. All calls are on the loop."""

    changes = 0

    def __init__(self, nodes: NodeView, protocol: str) -> None:
        """`protocol`: the security protocol by which brokers are read from."""
        self._nodes = nodes
        self._protocol = protocol

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
            path: self._nodes.read(path, partial(BrokerIdZNode.decode, broker))
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

    def partitions(self, topic: str) -> list[LedPartition] | None:
        """Return the partitions; empty without such a topic, None while they are unknown."""
        known, node = self._nodes.read(TopicZNode.path(topic), partial(TopicZNode.decode, topic))
        if not known:
            return None
        partitions = [] if node is None else list(node.assignment)
        states = {
            partition: self._nodes.read(
                PartitionStateZNode.path(topic, partition),
                partial(PartitionStateZNode.decode, topic, partition),
            )
            for partition in partitions
        }
        if not all(known for known, _ in states.values()):
            return None
        return [
            LedPartition(NO_LEADER if state is None else state.leader, partition)
            for partition, (_, state) in states.items()
        ]


class AskedBrokers:
    """According to the brokers, which a thread asks again and again."""

    def __init__(self, cluster: Cluster, pause_ms: int) -> None:
        """Takes `cluster` for itself, and asks once: HeadraceError where nobody answers or the
        log-in fails. `pause_ms`: the time between two questions."""
        self._cluster = cluster
        self._pause_ms = pause_ms
        self._view = cluster.metadata()
        self.changes = 0
        """Grows whenever an answer may be another one, beside what the group's znodes tell."""
        # Its own, for it waits for answers.
        self._asking = ClientLoop("headrace-zookeeper-brokers", on_end=lambda _: cluster.close())
        self._has_begun = False

    def begin(self, loop: ClientLoop, on_change: Callable[[], None]) -> None:
        """Start a thread that asks brokers; `on_change` is called on `loop`."""

        def ask() -> None:
            try:
                view = self._cluster.metadata()
            except HeadraceError as error:
                log.warning("brokers can't be asked for topics, tried again soon: %s", error)
            else:
                loop.call_soon(partial(self._learn, view, on_change))
            ask_later()

        def ask_later() -> None:
            self._asking.call_later(self._pause_ms, ask)

        self._has_begun = True
        self._asking.start()
        self._asking.call_soon(ask_later)

    def close(self) -> None:
        self._asking.stop()
        self._asking.join(_STOP_MS)
        if not self._has_begun:
            self._cluster.close()

    def topics(self) -> Sequence[str]:
        return tuple(self._view.topics)

    def addresses(self) -> str:
        brokers = self._view.brokers.values()
        return ",".join(sorted(address_text(each.host, each.port) for each in brokers))

    def partitions(self, topic: str) -> list[LedPartition]:
        found = self._view.topics.get(topic)
        return [] if found is None else [LedPartition(NO_LEADER, each) for each in found.partitions]

    def _learn(self, view: ClusterMetadata, on_change: Callable[[], None]) -> None:
        if _of_interest(view) != _of_interest(self._view):
            self._view = view
            self.changes += 1
            on_change()


def _of_interest(view: ClusterMetadata) -> tuple[dict[str, tuple[int, ...]], set[Address]]:
    topics = {name: tuple(topic.partitions) for name, topic in view.topics.items()}
    return topics, {(each.host, each.port) for each in view.brokers.values()}


BrokersView = RegisteredBrokers | AskedBrokers
