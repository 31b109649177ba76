"""Asks ZooKeeper which partitions a topic has: this broker's view may be behind. A topic is gone
only if ZooKeeper itself says so.

The node of a topic in deletion stays until the last replica is stopped, and a broker that has one
may be dead for long. So a request for the deletion is found beside the partitions: one that the
controller carries out is never taken back, but one that it refuses is there for a short time, too.
So the caller believes a request only when the controller has no such topic in its metadata. A
ZooKeeper that has lost the cluster's id has lost the topics with it, and is not believed. Source:
R-CTL6.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from storage_engine.broker import unexpected
from storage_engine.core.ports import MetadataStore, ZkReply, ZkStatus
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import ClusterIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as ZooKeeper has it."""

    partitions: frozenset[int]
    """The numbers of the partitions; empty when the topic does not exist."""
    deletion_is_requested: bool = False
    """Whether a deletion is requested; the controller may refuse it."""

    @property
    def is_gone_or_going(self) -> bool:
        """Only for a topic that is not in the controller's metadata."""
        return self.deletion_is_requested or not self.partitions


GONE = FoundTopic(frozenset())

OnFound = Callable[[FoundTopic | None], None]
"""Called with None when ZooKeeper does not answer, or its answer can't be trusted or processed."""


class TopicLookup:
    """Looks up topics in the ZooKeeper of one cluster."""

    def __init__(self, metadata_store: MetadataStore, cluster_id: str) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = Flows()
        self._cluster_id = cluster_id

    def look_up(self, topic: str, on_found: OnFound) -> None:
        self._flows.start(self._answer(topic), on_found)

    def _answer(self, topic: str) -> Flow[FoundTopic | None]:
        try:
            return (yield from self._look_up(topic))
        except Exception as error:  # noqa: BLE001 - who waits for it would never ask again
            unexpected.report(f"the look-up of the topic {topic}", error)
            return None

    def _look_up(self, topic: str) -> Flow[FoundTopic | None]:
        if not self._is_ours((yield from self._zookeeper.get(ClusterIdZNode.PATH))):
            return None
        found = yield from self._zookeeper.get(TopicZNode.path(topic))
        if found.status is ZkStatus.NO_NODE:
            return GONE
        if not found.ok:
            return None
        try:
            partitions = frozenset(TopicZNode.decode(topic, found.data).assignment)
        except ZnodeFormatError as failure:
            log.error("%s", failure)
            return None
        is_requested = yield from self._deletion_is_requested(topic)
        return None if is_requested is None else FoundTopic(partitions, is_requested)

    def _is_ours(self, reply: ZkReply) -> bool:
        try:
            return reply.ok and ClusterIdZNode.decode(reply.data).cluster_id == self._cluster_id
        except ZnodeFormatError:
            return False

    def _deletion_is_requested(self, topic: str) -> Flow[bool | None]:
        """Whether a child of the znode, or JSON in it, requests the deletion; None when ZooKeeper
        did not answer."""
        child = yield from self._zookeeper.exists(DeleteTopicsZNode.topic_path(topic))
        if child.ok:
            return True
        if child.status is not ZkStatus.NO_NODE:
            return None
        node = yield from self._zookeeper.get(DeleteTopicsZNode.PATH)
        if node.ok:
            return topic in _named(node.data)
        return False if node.status is ZkStatus.NO_NODE else None


def _named(data: bytes) -> tuple[str, ...]:
    try:
        return DeleteTopicsZNode.decode(data).topics
    except ZnodeFormatError:
        # The controller ignores it, and logs that.
        return ()
