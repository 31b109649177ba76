"""A ZooKeeper ensemble in memory, in simulated time: nodes, versions, watches, multi.

Every write is atomic, and numbered by a zxid; watches fire once. Its sessions, with their faults,
are in `zookeeper_session`.

Not modelled: reads of a follower that lags behind the ensemble's leader.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from simulation.world.clock import SimulatedLoop
from storage_engine.core.ports import ZkOp, ZkOpKind, ZkReply, ZkStat, ZkStatus

DELAY_MS = 1

FIRST_ZXID = 100
FIRST_SESSION = 1000


@dataclass(slots=True)
class Node:
    """A znode."""

    data: bytes
    czxid: int
    mzxid: int
    owner: int
    """The session of an ephemeral node, else 0."""
    version: int = 0
    sequence: int = 0
    """The next number of a sequential child."""

    @property
    def stat(self) -> ZkStat:
        return ZkStat(
            version=self.version, czxid=self.czxid, ephemeral_owner=self.owner, mzxid=self.mzxid
        )


class Watcher(Protocol):
    """The part of a session that watches use."""

    def watch_fired(self, fire: Callable[[], None]) -> None: ...


Watches = dict[str, list[tuple[Watcher, Callable[[], None]]]]

OnWrite = Callable[[str, bytes | None, bytes | None], None]
"""Gets (path, data before, data after); None where there is no node."""


@dataclass
class SimulatedZooKeeper:
    """The ensemble."""

    loop: SimulatedLoop
    nodes: dict[str, Node] = field(default_factory=dict)
    data_watches: Watches = field(default_factory=dict)
    child_watches: Watches = field(default_factory=dict)
    zxid: int = FIRST_ZXID
    sessions: int = 0
    live: set[int] = field(default_factory=set)
    """Sessions that were neither closed nor expired."""
    delay_ms: Callable[[], int] = lambda: DELAY_MS
    """The delay of each message, either way, in sessions that begin from now on."""
    closed_by_others: dict[int, Callable[[], None]] = field(default_factory=dict)
    """By live session, the callback that notifies its owner of a close by another broker."""
    on_session_closed: Callable[[int, bool], None] = lambda _session_id, _by_watcher: None
    """Called with each live session that another than its owner closes, and whether that is the
    owner's watcher."""
    on_watcher_done: Callable[[int], None] = lambda _session_id: None
    """Called with a session that a watcher counts as closed."""
    on_write: OnWrite | None = None
    """Called with every write, in order."""
    _names: dict[str, set[str]] = field(default_factory=dict)
    """The names of the children by path."""

    def __post_init__(self) -> None:
        self.nodes[""] = Node(b"", 0, 0, 0)
        self._names[""] = set()

    def new_session(self) -> int:
        self.sessions += 1
        self.live.add(FIRST_SESSION + self.sessions)
        return FIRST_SESSION + self.sessions

    def data(self, path: str) -> bytes | None:
        node = self.nodes.get(path)
        return None if node is None else node.data

    def children(self, path: str) -> list[str]:
        return sorted(self._names.get(path, ()))

    def put(self, path: str, data: bytes) -> None:
        """Create or set a node, as another program would."""
        kind = ZkOpKind.SET if path in self.nodes else ZkOpKind.CREATE
        assert self.check(ZkOp(kind=kind, path=path)) is ZkStatus.OK
        self.apply(ZkOp(kind=kind, path=path, data=data), 0)

    def drop(self, path: str) -> None:
        """Delete a node, as another program would."""
        self.apply(ZkOp(kind=ZkOpKind.DELETE, path=path), 0)

    def check(self, op: ZkOp) -> ZkStatus:
        """Return OK when an operation can be carried out, else why not."""
        node = self.nodes.get(op.path)
        if op.kind is ZkOpKind.CREATE:
            if node is not None and not op.sequence:
                return ZkStatus.NODE_EXISTS
            parent = op.path.rpartition("/")[0]
            return ZkStatus.OK if parent in self.nodes else ZkStatus.NO_NODE
        if node is None:
            return ZkStatus.NO_NODE
        if op.version not in (-1, node.version):
            return ZkStatus.BAD_VERSION
        if op.kind is ZkOpKind.DELETE and self._names.get(op.path):
            return ZkStatus.NOT_EMPTY
        return ZkStatus.OK

    def apply(self, op: ZkOp, session_id: int) -> str:
        """Carry out an operation that was checked; return the path."""
        fired: list[tuple[Watches, str]] = []
        changes: list[tuple[str, bytes | None, bytes | None]] = []
        path = self._change(op, session_id, self.zxid + 1, fired, changes)
        self._publish(fired, changes)
        return path

    def one(self, op: ZkOp, session_id: int) -> ZkReply:
        """Carry out one operation on its own; CREATE answers with the path."""
        status = self.check(op)
        if status is not ZkStatus.OK:
            return ZkReply(status=status)
        path = self.apply(op, session_id)
        node = self.nodes.get(path)
        made = path if op.kind is ZkOpKind.CREATE else ""
        return ZkReply(status=ZkStatus.OK, path=made, stat=node.stat if node else None)

    def multi(self, operations: Sequence[ZkOp], session_id: int) -> ZkReply:
        """Carry out operations one after another, under one zxid; undo all when one is refused."""
        fired: list[tuple[Watches, str]] = []
        changes: list[tuple[str, bytes | None, bytes | None]] = []
        before: dict[str, Node | None] = {}
        for index, op in enumerate(operations):
            status = self.check(op)
            if status is not ZkStatus.OK:
                self._restore(before)
                return ZkReply(status=status, failed=index)
            if op.kind is not ZkOpKind.CHECK:
                for path in (op.path, op.path.rpartition("/")[0]):
                    if path not in before:
                        node = self.nodes.get(path)
                        before[path] = None if node is None else replace(node)
                made = self._change(op, session_id, self.zxid + 1, fired, changes)
                before.setdefault(made, None)
        self._publish(fired, changes)
        return ZkReply(status=ZkStatus.OK)

    def make_parents(self, path: str) -> None:
        parts = path.split("/")[1:-1]
        for depth in range(1, len(parts) + 1):
            parent = "/" + "/".join(parts[:depth])
            if parent not in self.nodes:
                self.apply(ZkOp(kind=ZkOpKind.CREATE, path=parent), 0)

    def drop_session(self, session_id: int) -> None:
        """Remove the ephemeral nodes of a session that has expired or was closed."""
        self.live.discard(session_id)
        for path in [p for p, n in self.nodes.items() if n.owner == session_id]:
            self.apply(ZkOp(kind=ZkOpKind.DELETE, path=path), 0)

    @staticmethod
    def password_of(session_id: int) -> bytes:
        return session_id.to_bytes(16, "big")

    def close_session(self, session_id: int, *, by_watcher: bool = False) -> None:
        """Close a session for a client that knows its password; its owner is notified."""
        if session_id in self.live:
            self.on_session_closed(session_id, by_watcher)
            self.drop_session(session_id)
            if tell := self.closed_by_others.get(session_id):
                tell()

    def _change(
        self,
        op: ZkOp,
        session_id: int,
        zxid: int,
        fired: list[tuple[Watches, str]],
        changes: list[tuple[str, bytes | None, bytes | None]],
    ) -> str:
        path = op.path
        parent, _, _ = path.rpartition("/")
        if op.kind is ZkOpKind.CREATE:
            if op.sequence:
                above = self.nodes[parent]
                path = f"{path}{above.sequence:010d}"
                above.sequence += 1
            owner = session_id if op.ephemeral else 0
            self._add(path, Node(op.data, zxid, zxid, owner))
            fired += [(self.data_watches, path), (self.child_watches, parent)]
            changes.append((path, None, op.data))
        elif op.kind is ZkOpKind.SET:
            node = self.nodes[path]
            changes.append((path, node.data, op.data))
            node.data, node.version, node.mzxid = op.data, node.version + 1, zxid
            fired.append((self.data_watches, path))
        elif op.kind is ZkOpKind.DELETE:
            changes.append((path, self.nodes[path].data, None))
            self._remove(path)
            fired += [
                (self.data_watches, path),
                (self.child_watches, path),
                (self.child_watches, parent),
            ]
        return path

    def _publish(
        self,
        fired: list[tuple[Watches, str]],
        changes: list[tuple[str, bytes | None, bytes | None]],
    ) -> None:
        self.zxid += 1
        if self.on_write is not None:
            for path, old, new in changes:
                self.on_write(path, old, new)
        for watches, path in fired:
            for session, fire in watches.pop(path, ()):
                session.watch_fired(fire)

    def _add(self, path: str, node: Node) -> None:
        parent, _, name = path.rpartition("/")
        self.nodes[path] = node
        self._names.setdefault(path, set())
        self._names[parent].add(name)

    def _remove(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        del self.nodes[path]
        self._names[parent].discard(name)

    def _restore(self, before: dict[str, Node | None]) -> None:
        for path, node in before.items():
            if node is None:
                if path in self.nodes:
                    self._remove(path)
            elif path in self.nodes:
                self.nodes[path] = node
            else:
                self._add(path, node)
