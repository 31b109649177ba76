"""Removes the nodes of a topic whose replicas are all deleted.

The nodes of its partitions go first, then topic, settings and the request for the deletion in one
multi, so that the removal of the old topic takes nothing from a new one of that name, even when its
outcome is unknown. Every step checks the controller's fence. Children that others have created
below the nodes are removed too. Source: R-CTL6.
"""

from collections.abc import Iterable, Mapping

from storage_engine.broker.controller.fence import ControllerFence
from storage_engine.core.ports import MetadataStore, ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode
from storage_engine.zookeeper.flow import Flow, ZookeeperFlows
from storage_engine.zookeeper.subtree import remove_children, remove_subtree
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode
from storage_engine.zookeeper.znodes.topic_znodes import (
    PartitionStateZNode,
    PartitionsZNode,
    TopicZNode,
)

MAX_CLEARINGS = 10
"""One removal clears the nodes of a topic at most this often. Where others keep creating nodes
below them, a later attempt continues."""


class TopicRemoval:
    """Removals by one elected controller."""

    def __init__(self, metadata_store: MetadataStore, fence: ControllerFence) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._fence = fence
        self._unanswered: dict[str, int] = {}
        """Topics whose removal ZooKeeper did not answer -> the creation ids of their nodes."""

    def remove(self, topic: str, partitions: Iterable[int]) -> Flow[bool]:
        """Whether all of it is gone; else it is to be tried again."""
        if topic in self._unanswered:
            has_successor = yield from self._has_successor(topic)
            if has_successor is not False:
                return has_successor is True
        paths = [
            path
            for partition in partitions
            for path in (
                PartitionStateZNode.path(topic, partition),
                PartitionStateZNode.partition_path(topic, partition),
            )
        ]
        guard = [self._fence.check]
        for path in (*paths, PartitionsZNode.path(topic)):
            removed = yield from remove_subtree(self._zookeeper, path, guard=guard)
            if not removed.ok:
                return self._refused(removed)
        return (yield from self._remove_heads(topic))

    def _has_successor(self, topic: str) -> Flow[bool | None]:
        """Whether the removal that was not answered has been carried out, and a later topic has
        the name; None: ZooKeeper did not answer."""
        path, request = TopicZNode.path(topic), DeleteTopicsZNode.topic_path(topic)
        found = yield from self._zookeeper.exist_each((path, request))
        if _has_failed(found):
            return None
        czxid, stat = self._unanswered.pop(topic), found[path].stat
        # The request went with the node: one that is there now means the later topic.
        return stat is not None and stat.czxid != czxid and not found[request].ok

    def _remove_heads(self, topic: str) -> Flow[bool]:
        guard = [self._fence.check]
        heads = (
            TopicZNode.path(topic),
            ConfigZNode.topic_path(topic),
            DeleteTopicsZNode.topic_path(topic),
        )
        for clearings_left in range(MAX_CLEARINGS, -1, -1):
            found = yield from self._zookeeper.exist_each(heads)
            if _has_failed(found):
                return False
            present = [path for path in heads if found[path].ok]
            operations = [*guard, *(ZkOp(kind=ZkOpKind.DELETE, path=path) for path in present)]
            removed = yield from self._zookeeper.multi(operations)
            if removed.ok:
                return True
            stat = found[heads[0]].stat
            if removed.status is ZkStatus.UNKNOWN and stat is not None:
                self._unanswered[topic] = stat.czxid
            if removed.status is not ZkStatus.NOT_EMPTY or not clearings_left:
                return self._refused(removed)
            assert removed.failed is not None, "a refused multi says which operation it was"
            path = operations[removed.failed].path
            cleared = yield from remove_children(self._zookeeper, path, guard=guard)
            if not cleared.ok:
                return self._refused(cleared)
        return False

    def _refused(self, reply: ZkReply) -> bool:
        if reply.status in (ZkStatus.BAD_VERSION, ZkStatus.NO_NODE):
            self._fence.verify()
        return False


def _has_failed(found: Mapping[str, ZkReply]) -> bool:
    """Whether ZooKeeper left one of these questions unanswered."""
    return any(not reply.ok and not reply.is_absent for reply in found.values())
