"""Reads the nodes by which brokers notify the controller of changed ISRs and failed replicas.

A notice is removed once it was read, and read again where ZooKeeper did not answer; one that comes
twice or late does no harm, since it only says what to look at. Source: R-CTL5, KIP-112.
"""

import logging
from collections.abc import Callable, Mapping

from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import MetadataStore, Scheduler, ZkReply, ZkStatus
from storage_engine.zookeeper.admin_znodes import IsrChangeZNode, LogDirEventZNode
from storage_engine.zookeeper.flow import Flow, Flows, NewestWatches, ZookeeperFlows
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)

RETRY_MS = 500


def _ignore(_reply: ZkReply) -> None:
    """A notice that was not removed is read again with the next one."""


class Notices:
    """The notices of one kind: the children of a node."""

    def __init__(
        self,
        parent: str,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        flows: Flows,
        watches: NewestWatches,
        *,
        on_notices: Callable[[Mapping[str, bytes]], None],
    ) -> None:
        """`on_notices` hears the contents of those that there are, by their names."""
        self._parent = parent
        self._metadata_store = metadata_store
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._flows = flows
        self._watches = watches
        self._on_notices = on_notices

    def read(self) -> None:
        self._flows.start(self._read())

    def _read(self) -> Flow[None]:
        watch = self._watches.newest(self._parent, self.read)
        listed = yield from self._zookeeper.children(self._parent, watch)
        names = listed.children if listed.ok else ()
        paths = {f"{self._parent}/{name}": name for name in names}
        replies = yield from self._zookeeper.get_each(paths)
        found = {paths[path]: reply.data for path, reply in replies.items() if reply.ok}
        for name in found:
            self._metadata_store.delete(f"{self._parent}/{name}", -1, _ignore)
        if found:
            self._on_notices(found)
        if not listed.ok or any(reply.status is ZkStatus.UNKNOWN for reply in replies.values()):
            # Once, however many reads were not answered.
            again = self._watches.newest(f"{self._parent}, later", self.read)
            self._scheduler.call_later(RETRY_MS, again)


def changed_partitions(notices: Mapping[str, bytes]) -> list[TopicPartition]:
    """The partitions whose leaders have changed the ISR."""
    changed: set[TopicPartition] = set()
    for name, data in notices.items():
        try:
            node = IsrChangeZNode.decode(name, data)
        except ZnodeFormatError as failure:
            log.error("ISR change ignored: %s", failure)
            continue
        for problem in node.problems:
            log.error("ISR change ignored: %s", problem)
        changed.update(node.partitions)
    return sorted(changed)


def failed_brokers(notices: Mapping[str, bytes]) -> list[BrokerId]:
    """The brokers some of whose replicas have failed; they do not say which."""
    brokers = []
    for name, data in notices.items():
        try:
            brokers.append(LogDirEventZNode.decode(name, data).broker_id)
        except ZnodeFormatError as failure:
            log.error("notice of a failed log dir ignored: %s", failure)
    return brokers
