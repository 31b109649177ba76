"""Asks ZooKeeper which partitions a topic has: this broker's view may be behind. Its one rule: a
topic is gone only if ZooKeeper itself says so.

The node of a topic in deletion stays until the last replica is stopped, and a broker that has one
may be dead for long. So a request is told beside the partitions: one that the controller carries
out is never taken back, but one that it refuses lies there for a moment, too. Who asks takes a
request for a deletion only when the controller tells of no such topic. A ZooKeeper that has lost
the cluster's id has lost the topics with it, and is not believed. Source: R-CTL6.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from storage_engine.core.ports import MetadataStore, ZkReply, ZkStatus
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes import ClusterIdZNode, TopicZNode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """What ZooKeeper has of one topic."""

    partitions: frozenset[int]
    """Their numbers; empty when there is no such topic."""
    deletion_is_requested: bool = False
    """The controller may refuse it."""

    @property
    def is_gone_or_going(self) -> bool:
        """For one who knows that the controller tells of no such topic."""
        return self.deletion_is_requested or not self.partitions


GONE = FoundTopic(frozenset())

OnFound = Callable[[FoundTopic | None], None]
"""None when it can't be told at present."""


class TopicLookup:
    """Of one cluster."""

    def __init__(self, metadata_store: MetadataStore, cluster_id: str) -> None:
        self._metadata_store = metadata_store
        self._cluster_id = cluster_id

    def look_up(self, topic: str, on_found: OnFound) -> None:
        def on_cluster_id(reply: ZkReply) -> None:
            if self._is_ours(reply):
                self._metadata_store.get(TopicZNode.path(topic), on_topic)
            else:
                on_found(None)

        def on_topic(reply: ZkReply) -> None:
            if reply.status is ZkStatus.NO_NODE:
                on_found(GONE)
                return
            if not reply.ok:
                on_found(None)
                return
            try:
                there = frozenset(TopicZNode.decode(topic, reply.data).assignment)
            except ZnodeFormatError as failure:
                log.error("%s", failure)
                on_found(None)
            else:
                self._look_for_request(topic, there, on_found)

        self._metadata_store.get(ClusterIdZNode.PATH, on_cluster_id)

    def _is_ours(self, reply: ZkReply) -> bool:
        try:
            return reply.ok and ClusterIdZNode.decode(reply.data).cluster_id == self._cluster_id
        except ZnodeFormatError:
            return False

    def _look_for_request(self, topic: str, there: frozenset[int], on_found: OnFound) -> None:
        """In both forms."""
        asked_to_go = FoundTopic(there, deletion_is_requested=True)

        def on_child(reply: ZkReply) -> None:
            if reply.ok:
                on_found(asked_to_go)
            elif reply.status is ZkStatus.NO_NODE:
                self._metadata_store.get(DeleteTopicsZNode.PATH, on_json)
            else:
                on_found(None)

        def on_json(reply: ZkReply) -> None:
            if reply.status is ZkStatus.NO_NODE:
                on_found(FoundTopic(there))
            elif not reply.ok:
                on_found(None)
            else:
                on_found(asked_to_go if topic in _named(reply.data) else FoundTopic(there))

        self._metadata_store.exists(DeleteTopicsZNode.topic_path(topic), on_child)


def _named(data: bytes) -> tuple[str, ...]:
    try:
        return DeleteTopicsZNode.decode(data).topics
    except ZnodeFormatError:
        # The controller ignores it, and says so.
        return ()
