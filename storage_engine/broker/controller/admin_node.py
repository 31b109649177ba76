"""One znode by which others ask something of the controller: read, watched, changed.

Rule: the watch is set in the read that answers it; a node that is not there is waited for. Source:
R-CTL10; document 001 (controller failover, steps 2 and 3).
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from storage_engine.broker import unexpected
from storage_engine.core.ports import MetadataStore, Scheduler, ZkCallback, ZkReply, ZkStatus
from storage_engine.zookeeper.subtree import remove_children

log = logging.getLogger(__name__)

RETRY_MS = 500
CONFLICT_PAUSE_MS = 50
"""Between two attempts to change what others change too."""
FAILED_MS = 5_000
"""Before content is told again that its owner could not take."""


class Content(NamedTuple):
    """What a node holds; a node that is not there holds nothing and has no version."""

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
        *,
        on_content: Callable[[Content], None],
    ) -> None:
        """`on_content` hears the content at the start and after every change."""
        self.path = path
        self._metadata_store = metadata_store
        self._scheduler = scheduler
        self._on_content = on_content
        self._generation = 0
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def read(self) -> None:
        """Read now; the content is told."""
        self._generation += 1
        generation = self._generation

        def is_old() -> bool:
            return self._closed or generation != self._generation

        def fired() -> None:
            if not is_old():
                self.read()

        def on_data(reply: ZkReply) -> None:
            if is_old():
                return
            if reply.ok and reply.stat is not None:
                self._tell(Content(reply.data, reply.stat.version), fired)
            elif reply.status is ZkStatus.NO_NODE:
                self._metadata_store.exists(self.path, on_existence, fired)
            else:
                self._scheduler.call_later(RETRY_MS, fired)

        def on_existence(reply: ZkReply) -> None:
            if is_old():
                return
            if reply.status is ZkStatus.NO_NODE:
                self._tell(ABSENT, fired)
            elif reply.ok:
                self.read()
            else:
                self._scheduler.call_later(RETRY_MS, fired)

        self._metadata_store.get(self.path, on_data, fired)

    def _tell(self, content: Content, again: Callable[[], None]) -> None:
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

        def on_data(reply: ZkReply) -> None:
            if reply.ok and reply.stat is not None:
                put(reply.data, reply.stat.version)
            elif reply.status is ZkStatus.NO_NODE:
                put(None, -1)
            else:
                done(False)

        def put(data: bytes | None, version: int) -> None:
            try:
                wanted = new_data(data)
            except Exception as error:  # noqa: BLE001 - whatever it is, who asked is answered
                done(False)
                unexpected.report(f"content of {self.path} not changed", error)
                return
            if wanted == data:
                done(True)
            elif wanted is None:
                self._delete(version, on_put, given_up)
            elif data is None:
                self._metadata_store.create(self.path, wanted, on_put, make_parents=True)
            else:
                self._metadata_store.set(self.path, wanted, version, on_put)

        def on_put(reply: ZkReply) -> None:
            if reply.ok or once or reply.status is ZkStatus.UNKNOWN:
                done(reply.ok)
            else:
                self._after_pause(lambda: self.change(new_data, done), given_up)

        def given_up() -> None:
            done(False)

        self._metadata_store.get(self.path, on_data)

    def _delete(self, version: int, on_reply: ZkCallback, given_up: Callable[[], None]) -> None:
        """With what others have made below the node. `given_up`: its controller's end has come."""

        def on_deleted(reply: ZkReply) -> None:
            if reply.status is not ZkStatus.NOT_EMPTY:
                on_reply(reply)
                return
            log.warning("%s has nodes below it, which ask for nothing: removed", self.path)
            remove_children(self._metadata_store, self.path, on_cleared)

        def on_cleared(_reply: ZkReply) -> None:
            # Not at once: others may make them as fast.
            self._after_pause(lambda: self._delete(version, on_reply, given_up), given_up)

        self._metadata_store.delete(self.path, version, on_deleted)

    def _after_pause(self, work: Callable[[], None], given_up: Callable[[], None]) -> None:
        self._scheduler.call_later(
            CONFLICT_PAUSE_MS, lambda: given_up() if self._closed else work()
        )
