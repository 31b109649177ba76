"""Requests for the deletion of topics: children of /admin/delete_topics, or one JSON in it.

Each topic that a JSON names gets a child before its deletion begins. A child is removed in the same
multi as its topic; an entry that stayed in the JSON would delete a later topic of that name.
Source: R-CTL6, R-CTL10.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from storage_engine.broker.controller.fence import ControllerFence
from storage_engine.core.ports import (
    MetadataStore,
    Scheduler,
    ZkOp,
    ZkOpKind,
    ZkReply,
    ZkStatus,
)
from storage_engine.zookeeper.admin_znodes import DeleteTopicsZNode
from storage_engine.zookeeper.flow import Flow, Flows, NewestWatches, ZookeeperFlows, pause
from storage_engine.zookeeper.subtree import remove_subtree
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)

RETRY_MS = 500

TOPICS_PER_MULTI = 100
"""A request may name very many: they are taken in parts of this size."""


class _JsonRequest(NamedTuple):
    topics: tuple[str, ...]
    version: int


class DeletionRequests:
    """The requests as one elected controller reads them."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        flows: Flows,
        watches: NewestWatches,
        fence: ControllerFence,
        *,
        on_requests: Callable[[tuple[str, ...]], None],
    ) -> None:
        """`on_requests` hears all that there are, at the start and whenever they change."""
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._flows = flows
        self._watches = watches
        self._fence = fence
        self._on_requests = on_requests

    def read(self) -> None:
        self._flows.start(self._read())

    def _read(self) -> Flow[None]:
        """Sets a watch on each form: the JSON may be set without a change of the children."""
        path = DeleteTopicsZNode.PATH
        while True:
            watch = self._watches.newest("deletions as JSON", self.read)
            found = yield from self._zookeeper.get(path, watch)
            if found.status is not ZkStatus.UNKNOWN:
                if not found.ok:
                    self._flows.start(self._await_creation())
                    self._on_requests(())
                    return
                request = _json_request(found)
                if request is None:
                    watch = self._watches.newest("deletions", self.read)
                    listed = yield from self._zookeeper.children(path, watch)
                    if listed.status is not ZkStatus.UNKNOWN:
                        self._on_requests(tuple(listed.children) if listed.ok else ())
                        return
                elif (yield from self._turn_into_children(request)):
                    # The watch on the JSON leads to the next read.
                    return
            yield from pause(self._scheduler, RETRY_MS)

    def _await_creation(self) -> Flow[None]:
        while True:
            watch = self._watches.newest("deletions", self.read)
            seen = yield from self._zookeeper.exists(DeleteTopicsZNode.PATH, watch)
            if seen.ok:
                self.read()
            if seen.status is not ZkStatus.UNKNOWN:
                return
            yield from pause(self._scheduler, RETRY_MS)

    def _turn_into_children(self, request: _JsonRequest) -> Flow[bool]:
        """Whether the first part of it was taken out of the JSON."""
        part, rest = request.topics[:TOPICS_PER_MULTI], request.topics[TOPICS_PER_MULTI:]
        listed = yield from self._zookeeper.children(DeleteTopicsZNode.PATH)
        if not listed.ok:
            return False
        creations = [
            ZkOp(kind=ZkOpKind.CREATE, path=DeleteTopicsZNode.topic_path(topic))
            for topic in dict.fromkeys(part)
            if topic not in listed.children
        ]
        shortened = ZkOp(
            kind=ZkOpKind.SET,
            path=DeleteTopicsZNode.PATH,
            data=DeleteTopicsZNode(topics=rest).encode() if rest else b"",
            version=request.version,
        )
        turned = yield from self._zookeeper.multi([self._fence.check, *creations, shortened])
        return turned.ok

    def drop(self, topic: str) -> None:
        """Removes a request."""
        path = DeleteTopicsZNode.topic_path(topic)
        # One that others have made nodes below would delete a later topic of that name.
        self._flows.start(remove_subtree(self._zookeeper, path))


def _json_request(reply: ZkReply) -> _JsonRequest | None:
    """None when the znode names no topics."""
    if not reply.data or reply.stat is None:
        return None
    try:
        node = DeleteTopicsZNode.decode(reply.data)
    except ZnodeFormatError as failure:
        log.error("deletion ignored: %s", failure)
        return None
    for problem in node.problems:
        log.error("deletion ignored: %s", problem)
    return _JsonRequest(node.topics, reply.stat.version) if node.topics else None
