"""Finds the logs of deleted topics. When a broker was away from the end of a reassignment to the
end of the topic's deletion, it gets no order to delete its former replica; and a power failure
undoes a deletion that was not on the disk yet.

A log is put aside, never removed, and only when ZooKeeper itself says that there is no such
partition: a topic that the controller does not name may be one that it can't read. A ZooKeeper that
has lost the cluster's id has lost the topics with it, and is not believed. Source: R-CTL6; Kafka
puts such logs aside too.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable

from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.core.errors import LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import MetadataStore, Scheduler, ZkReply, ZkStatus
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import ClusterIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

log = logging.getLogger(__name__)

RETRY_MS = 500
"""Pause before ZooKeeper, which is away or slow, is asked again."""


class OrphanedLogs:
    """Puts aside logs that the controller does not name and whose topics are deleted."""

    def __init__(
        self,
        cluster_id: str,
        *,
        metadata_store: MetadataStore,
        logs: LogManager,
        replicas: ReplicaManager,
        scheduler: Scheduler,
    ) -> None:
        self._cluster_id = cluster_id
        self._metadata_store = metadata_store
        self._logs = logs
        self._replicas = replicas
        self._scheduler = scheduler

    def put_aside_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """Put aside the logs of partitions that don't exist, as soon as ZooKeeper confirms it."""
        by_topic: defaultdict[str, list[TopicPartition]] = defaultdict(list)
        for tp in partitions:
            by_topic[tp.topic].append(tp)
        if by_topic:
            self._check_cluster(by_topic)

    def _check_cluster(self, by_topic: dict[str, list[TopicPartition]]) -> None:
        def on_cluster_id(reply: ZkReply) -> None:
            if reply.status is ZkStatus.UNKNOWN:
                self._scheduler.call_later(RETRY_MS, lambda: self._check_cluster(by_topic))
            elif self._is_ours(reply):
                for topic, partitions in by_topic.items():
                    self._ask(topic, partitions)
            else:
                log.error(
                    "logs of %d unknown topics left alone: %s in ZooKeeper is not that of cluster"
                    " %s any more; restore ZooKeeper's data",
                    len(by_topic), ClusterIdZNode.PATH, self._cluster_id,
                )  # fmt: skip

        self._metadata_store.get(ClusterIdZNode.PATH, on_cluster_id)

    def _is_ours(self, reply: ZkReply) -> bool:
        try:
            return reply.ok and ClusterIdZNode.decode(reply.data).cluster_id == self._cluster_id
        except ZnodeFormatError:
            return False

    def _ask(self, topic: str, partitions: list[TopicPartition]) -> None:
        def on_topic(reply: ZkReply) -> None:
            if reply.status is ZkStatus.NO_NODE:
                self._put_aside(partitions)
            elif reply.ok:
                try:
                    there = TopicZNode.decode(topic, reply.data).assignment
                except ZnodeFormatError as failure:
                    log.error("logs of topic %s left alone: %s", topic, failure)
                    return
                self._put_aside([tp for tp in partitions if tp.partition not in there])
            else:
                self._scheduler.call_later(RETRY_MS, lambda: self._ask(topic, partitions))

        self._metadata_store.get(TopicZNode.path(topic), on_topic)

    def _put_aside(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            if self._replicas.get(tp) is not None:
                # The topic was created again meanwhile, and this broker has got the order.
                continue
            try:
                self._logs.put_aside(tp)
            except LogStorageError as failure:
                log.error("log of %s not put aside, though its topic is gone: %s", tp, failure)
