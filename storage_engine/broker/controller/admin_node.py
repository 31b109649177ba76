"""A znode by which others request something from the controller. It is read, watched and changed
here.

Rule: the watch is set in the read that answers it; a node that is not there is waited for. Source:
R-CTL10.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from storage_engine.broker import unexpected
from storage_engine.core.ports import MetadataStore, Scheduler, ZkReply, ZkStatus
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows, pause
from storage_engine.zookeeper.subtree import remove_children

log = logging.getLogger(__name__)

RETRY_MS = 500
CONFLICT_PAUSE_MS = 50
"""Between two attempts to change what others change too."""
FAILED_MS = 5_000
"""Before content is passed on again that its owner could not take."""


class Content(NamedTuple):
    """The content of a node; a node that is not there holds nothing and has no version."""

    data: bytes | None
    version: int


ABSENT = Content(None, -1)


class AdminNode:
    """A node that is watched as long as its controller acts."""

    def __init__(
        self,
        path: str,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        flows: Flows,
        *,
        on_content: Callable[[Content], None],
    ) -> None:
        """`flows` end with the controller. `on_content` hears the content at the start and after
        every change."""
        self.path = path
        self._metadata_store = metadata_store
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._flows = flows
        self._changes = Flows()
        """They go on when the controller has ended, until it is known whether they were made."""
        self._on_content = on_content
        self._generation = 0

    def read(self) -> None:
        """Read now; the content is passed on. Of several reads under way only the newest counts."""
        self._generation += 1
        self._flows.start(self._read(self._generation))

    def _read_again(self, generation: int) -> None:
        if generation == self._generation and not self._flows.closed:
            self.read()

    def _read(self, generation: int) -> Flow[None]:
        fired = partial(self._read_again, generation)
        found = yield from self._zookeeper.get(self.path, fired)
        is_absent = False
        if found.status is ZkStatus.NO_NODE and generation == self._generation:
            seen = yield from self._zookeeper.exists(self.path, fired)
            is_absent = seen.status is ZkStatus.NO_NODE
            if seen.ok:
                fired()
                return
        if generation != self._generation:
            return
        if is_absent:
            self._pass_on(ABSENT, fired)
        elif found.ok and found.stat is not None:
            self._pass_on(Content(found.data, found.stat.version), fired)
        else:
            self._scheduler.call_later(RETRY_MS, fired)

    def _pass_on(self, content: Content, again: Callable[[], None]) -> None:
        try:
            self._on_content(content)
        except Exception as error:  # noqa: BLE001 - whatever it is, the node is read again
            self._scheduler.call_later(FAILED_MS, again)
            unexpected.report(f"content of {self.path} not taken", error)

    def change(
        self,
        new_data: Callable[[bytes | None], bytes | None],
        done: Callable[[bool], None],
        *,
        once: bool = False,
    ) -> None:
        """Replace the content by what `new_data` makes of it; None removes the node.

        `done(False)`: ZooKeeper did not answer, it may or may not have happened; or, with `once`,
        somebody else was faster, and what he wrote may ask for something else.
        """
        self._changes.start(self._change(new_data, once=once), done)

    def _change(
        self, new_data: Callable[[bytes | None], bytes | None], *, once: bool
    ) -> Flow[bool]:
        while True:
            found = yield from self._zookeeper.get(self.path)
            if found.ok and found.stat is not None:
                content = Content(found.data, found.stat.version)
            elif found.status is ZkStatus.NO_NODE:
                content = ABSENT
            else:
                return False
            try:
                wanted = new_data(content.data)
            except Exception as error:  # noqa: BLE001 - whatever it is, who asked is answered
                unexpected.report(f"content of {self.path} not changed", error)
                return False
            if wanted == content.data:
                return True
            written = yield from self._put(content, wanted)
            if written is None:
                return False
            if written.ok or once or written.status is ZkStatus.UNKNOWN:
                return written.ok
            yield from pause(self._scheduler, CONFLICT_PAUSE_MS)
            if self._flows.closed:
                return False

    def _put(self, present: Content, wanted: bytes | None) -> Flow[ZkReply | None]:
        if wanted is None:
            return (yield from self._delete(present.version))
        if present.data is None:
            return (yield from self._zookeeper.create(self.path, wanted, make_parents=True))
        return (yield from self._zookeeper.set(self.path, wanted, present.version))

    def _delete(self, version: int) -> Flow[ZkReply | None]:
        """Deletes the znode and the nodes below it. Returns None when this controller has ended."""
        while True:
            deleted = yield from self._zookeeper.delete(self.path, version)
            if deleted.status is not ZkStatus.NOT_EMPTY:
                return deleted
            log.warning("%s has nodes below it, which ask for nothing: removed", self.path)
            yield partial(remove_children, self._metadata_store, self.path)
            # Not at once: others may make them as fast.
            yield from pause(self._scheduler, CONFLICT_PAUSE_MS)
            if self._flows.closed:
                return None
