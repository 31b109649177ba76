"""The removal of a node together with what other programs may have made below it.

Rule: ZooKeeper removes only what has no children, so they go first, the deepest before all others;
every step has the same guard, so that nothing more is removed once that does not hold. Only
`core.ports` is used, so that it runs in the simulation too.
"""

from collections.abc import Sequence

from storage_engine.core.ports import MetadataStore, ZkCallback, ZkOp, ZkOpKind, ZkReply, ZkStatus

MAX_LISTINGS = 10
"""The most listings of one node: children that others create as fast as they are removed are left
to a later attempt."""


def remove_subtree(
    metadata_store: MetadataStore,
    path: str,
    done: ZkCallback,
    *,
    guard: Sequence[ZkOp] = (),
    version: int = -1,
) -> None:
    """Remove `path`, which must be of this version, and all below it. `done` gets OK when it is
    gone, or was not there, else the status of the guard or node that was refused."""
    _Removal(metadata_store, guard, done).begin(path, version)


def remove_children(
    metadata_store: MetadataStore, path: str, done: ZkCallback, *, guard: Sequence[ZkOp] = ()
) -> None:
    """Remove all below `path`, as `remove_subtree` does."""
    _Removal(metadata_store, guard, done).begin_below(path)


class _Removal:
    """The removal with its stack of nodes, each above those that were found below it."""

    def __init__(
        self, metadata_store: MetadataStore, guard: Sequence[ZkOp], done: ZkCallback
    ) -> None:
        self._metadata_store = metadata_store
        self._guard = list(guard)
        self._done = done
        self._stack: list[tuple[str, int, int]] = []
        """The path, the version, and how often its children were listed."""

    def begin(self, path: str, version: int) -> None:
        self._stack.append((path, version, 0))
        self._next()

    def begin_below(self, path: str) -> None:
        self._list(path)

    def _next(self) -> None:
        if not self._stack:
            self._done(ZkReply(status=ZkStatus.OK))
            return
        path, version, _ = self._stack[-1]
        deletion = ZkOp(kind=ZkOpKind.DELETE, path=path, version=version)
        self._metadata_store.multi([*self._guard, deletion], self._on_deleted)

    def _on_deleted(self, reply: ZkReply) -> None:
        is_of_node = reply.failed == len(self._guard)
        if reply.ok or (reply.is_absent and is_of_node):
            self._stack.pop()
            self._next()
        elif reply.status is ZkStatus.NOT_EMPTY:
            path, version, listings = self._stack[-1]
            if listings == MAX_LISTINGS:
                self._done(reply)
                return
            self._stack[-1] = path, version, listings + 1
            self._list(path)
        else:
            self._done(reply)

    def _list(self, path: str) -> None:
        def on_children(reply: ZkReply) -> None:
            if reply.ok or reply.is_absent:
                names = reply.children if reply.ok else ()
                self._stack.extend((f"{path}/{name}", -1, 0) for name in names)
                self._next()
            else:
                self._done(reply)

        self._metadata_store.children(path, on_children)
