"""A member's cache of znodes: each is read once and valid until its watch fires.

Every known node has a watch that has not fired; a node that is asked for and not known is read, and
its user is notified when to look again. So a look costs reads of what has changed only, and at most
one watch a node. All calls are on the loop.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from storage_engine.core.ports import MetadataStore, Scheduler, SessionState, ZkReply, ZkStatus
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)

Decoded = TypeVar("Decoded")

RETRY_MS = 100
"""The delay after an answer that leaves the outcome open."""


class Seen(NamedTuple):
    """A node with its data, or with the names of its children."""

    there: bool
    data: bytes = b""
    owner: int = 0
    """The session of an ephemeral node, else 0."""
    children: tuple[str, ...] = ()


ABSENT = Seen(there=False)


class NodeView:
    """Calls `on_change` when something that was asked for may be another."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        on_change: Callable[[], None],
    ) -> None:
        self._metadata_store = metadata_store
        self._scheduler = scheduler
        self._on_change = on_change
        self._data: dict[str, Seen] = {}
        self._children: dict[str, Seen] = {}
        self._decoded: dict[str, tuple[Seen, Any]] = {}
        """The last decoded value of each path, and the data that it was decoded from."""
        self.changes = 0
        """Grows whenever something that is known changes."""
        self._reading: set[tuple[bool, str]] = set()
        """(whether its children, path): their answers will come."""
        self._connected = metadata_store.session_id != 0
        metadata_store.add_state_listener(self._on_state)

    def data(self, path: str) -> Seen | None:
        """Return the data of a znode; None while it is being read."""
        seen = self._data.get(path)
        if seen is None:
            self._read(path, children=False)
        return seen

    def read(self, path: str, decode: Callable[[bytes], Decoded]) -> tuple[bool, Decoded | None]:
        """(whether it is known, what it holds; None where there is nothing that can be read). What
        others wrote amiss counts as nothing, and is logged once."""
        seen = self.data(path)
        if seen is None or not seen.there:
            return seen is not None, None
        from_what, decoded = self._decoded.get(path, (None, None))
        if from_what is not seen:
            try:
                decoded = decode(seen.data)
            except ZnodeFormatError as error:
                log.warning("%s", error)
                decoded = None
            self._decoded[path] = seen, decoded
        return True, decoded

    def children(self, path: str) -> Seen | None:
        """Return the children of a znode; None while they are being read."""
        seen = self._children.get(path)
        if seen is None:
            self._read(path, children=True)
        return seen

    def forget(self, path: str) -> None:
        """The data was written, or may have been: read it again when it is asked for."""
        self._data.pop(path, None)
        self.changes += 1

    def _on_state(self, state: SessionState) -> None:
        self._connected = state is SessionState.CONNECTED
        if state is SessionState.LOST:
            self._data.clear()
            self._children.clear()
            self.changes += 1

    def _read(self, path: str, *, children: bool) -> None:
        if not self._connected or (children, path) in self._reading:
            return
        self._reading.add((children, path))
        read = self._metadata_store.children if children else self._metadata_store.get
        read(
            path,
            functools.partial(self._on_read, path, children),
            functools.partial(self._on_watch, path, children),
        )

    def _on_read(self, path: str, children: bool, reply: ZkReply) -> None:
        if reply.status is ZkStatus.NO_NODE:
            # Only this one sets a watch on what is not there.
            self._metadata_store.exists(
                path,
                functools.partial(self._on_absent, path, children),
                functools.partial(self._on_watch, path, children),
            )
            return
        if reply.is_absent:
            self._on_absent(path, children, reply)
            return
        self._reading.discard((children, path))
        if not reply.ok:
            self._scheduler.call_later(RETRY_MS, self._on_change)
            return
        self.changes += 1
        if children:
            self._children[path] = Seen(there=True, children=tuple(reply.children))
        else:
            owner = reply.stat.ephemeral_owner if reply.stat else 0
            self._data[path] = Seen(there=True, data=reply.data, owner=owner)
        self._on_change()

    def _on_absent(self, path: str, children: bool, reply: ZkReply) -> None:
        self._reading.discard((children, path))
        if reply.is_absent:
            (self._children if children else self._data)[path] = ABSENT
        elif not reply.ok:
            self._scheduler.call_later(RETRY_MS, self._on_change)
            return
        # Else it has come meanwhile: whoever asks for it again has it read.
        self.changes += 1
        self._on_change()

    def _on_watch(self, path: str, children: bool) -> None:
        (self._children if children else self._data).pop(path, None)
        self.changes += 1
        self._on_change()
