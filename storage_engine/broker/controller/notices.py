"""Nodes by which brokers notify the controller: changes of an ISR, and replicas that failed.

Rule: a notice is removed once it was read, and read again where ZooKeeper did not answer; one that
comes twice or late does no harm, since it only says what to look at. Source: R-CTL5, KIP-112.
"""

import logging
from collections.abc import Callable, Iterable

from storage_engine.broker.controller.newest_watches import NewestWatches
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.ports import MetadataStore, Scheduler, ZkReply, ZkStatus
from storage_engine.zookeeper.admin_znodes import IsrChangeZNode, LogDirEventZNode
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows, pause
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)

RETRY_MS = 500


def _ignore(_reply: ZkReply) -> None:
    """A notice that was not removed is read again with the next one."""


class IsrChangeNotices:
    """Partitions whose leaders have changed the ISR."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        flows: Flows,
        watches: NewestWatches,
        *,
        on_changes: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        self._metadata_store = metadata_store
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._flows = flows
        self._watches = watches
        self._on_changes = on_changes

    def read(self) -> None:
        self._flows.start(self._read())

    def _read(self) -> Flow[None]:
        while True:
            watch = self._watches.newest("ISR changes", self.read)
            listed = yield from self._zookeeper.children(IsrChangeZNode.PARENT, watch)
            if listed.ok:
                break
            yield from pause(self._scheduler, RETRY_MS)
        children = {IsrChangeZNode.path(child): child for child in listed.children}
        replies = yield from self._zookeeper.get_each(children)
        changed: set[TopicPartition] = set()
        for path, reply in replies.items():
            if reply.ok:
                changed.update(_changed(children[path], reply.data))
                self._metadata_store.delete(path, -1, _ignore)
        if changed:
            self._on_changes(sorted(changed))


def _changed(child: str, data: bytes) -> tuple[TopicPartition, ...]:
    try:
        node = IsrChangeZNode.decode(child, data)
    except ZnodeFormatError as failure:
        log.error("ISR change ignored: %s", failure)
        return ()
    for problem in node.problems:
        log.error("ISR change ignored: %s", problem)
    return tuple(node.partitions)


class FailureNotices:
    """Brokers some of whose replicas have failed; they do not say which."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        flows: Flows,
        watches: NewestWatches,
        *,
        on_failure: Callable[[BrokerId], None],
    ) -> None:
        self._metadata_store = metadata_store
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._flows = flows
        self._watches = watches
        self._on_failure = on_failure

    def read(self) -> None:
        self._flows.start(self._read())

    def _read(self) -> Flow[None]:
        watch = self._watches.newest("failure notices", self.read)
        listed = yield from self._zookeeper.children(LogDirEventZNode.PARENT, watch)
        names = listed.children if listed.ok else ()
        children = {LogDirEventZNode.path(child): child for child in names}
        replies = yield from self._zookeeper.get_each(children)
        for path, reply in replies.items():
            if reply.ok:
                self._metadata_store.delete(path, -1, _ignore)
                self._take(children[path], reply.data)
        if not listed.ok or any(reply.status is ZkStatus.UNKNOWN for reply in replies.values()):
            # Once, however many reads were not answered.
            again = self._watches.newest("failure notices read later", self.read)
            self._scheduler.call_later(RETRY_MS, again)

    def _take(self, child: str, data: bytes) -> None:
        try:
            broker = LogDirEventZNode.decode(child, data).broker_id
        except ZnodeFormatError as failure:
            log.error("notice of a failed log directory ignored: %s", failure)
        else:
            self._on_failure(broker)
