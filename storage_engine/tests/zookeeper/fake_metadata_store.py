"""A ZooKeeper in memory whose answers come when the test says so, and can be lost.

Fault model: an operation may be done and its answer lost, or be lost on the way; a session may be
suspended (its watches fire, nothing is answered) or expire (its ephemeral nodes go).
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from storage_engine.core.ports import (
    SessionState,
    ZkCallback,
    ZkOp,
    ZkOpKind,
    ZkReply,
    ZkStat,
    ZkStatus,
)


@dataclass(slots=True)
class _Node:
    data: bytes
    czxid: int
    owner: int
    version: int = 0


@dataclass
class FakeZooKeeper:
    """The server: nodes, watches, and the queue of what has yet to happen."""

    nodes: dict[str, _Node] = field(default_factory=dict)
    queue: deque[Callable[[], None]] = field(default_factory=deque)
    watches: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    zxid: int = 0
    sessions: int = 0

    def run(self) -> None:
        """Until nothing is left to do."""
        while self.queue:
            self.queue.popleft()()

    def changed(self, path: str) -> None:
        for watch in self.watches.pop(path, []):
            self.queue.append(watch)

    def remove(self, path: str) -> None:
        del self.nodes[path]
        self.changed(path)

    def apply(self, op: ZkOp, owner: int) -> ZkStatus:
        node = self.nodes.get(op.path)
        if op.kind is ZkOpKind.CREATE:
            if node is not None:
                return ZkStatus.NODE_EXISTS
            self.zxid += 1
            self.nodes[op.path] = _Node(op.data, self.zxid, owner if op.ephemeral else 0)
            self.changed(op.path)
            return ZkStatus.OK
        if node is None:
            return ZkStatus.NO_NODE
        if op.version not in (-1, node.version):
            return ZkStatus.BAD_VERSION
        if op.kind is ZkOpKind.SET:
            node.data, node.version = op.data, node.version + 1
            self.changed(op.path)
        elif op.kind is ZkOpKind.DELETE:
            self.remove(op.path)
        return ZkStatus.OK


class FakeMetadataStore:
    """One broker's session. It implements `MetadataStore` for flows that list no children; the
    parents of a node need not be there."""

    def __init__(self, server: FakeZooKeeper) -> None:
        self.server = server
        self.listeners: list[Callable[[SessionState], None]] = []
        self.lose_answers = 0
        """So many of the next operations are done, but answered UNKNOWN."""
        self.lose_requests = 0
        """So many of the next operations are not done, and answered UNKNOWN."""
        self._id = 0
        self._open()

    @property
    def session_id(self) -> int:
        return self._id

    def add_state_listener(self, listener: Callable[[SessionState], None]) -> None:
        self.listeners.append(listener)

    def expire(self) -> None:
        """The session is gone, and the broker learns it."""
        owner, self._id = self._id, 0
        for path in [p for p, node in self.server.nodes.items() if node.owner == owner]:
            self.server.remove(path)
        self._tell(SessionState.LOST)

    def reconnect(self) -> None:
        self._open()
        self._tell(SessionState.CONNECTED)

    def get(self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None) -> None:
        def do() -> ZkReply:
            node = self.server.nodes.get(path)
            if node is None:
                return ZkReply(status=ZkStatus.NO_NODE)
            if watch is not None:
                self.server.watches.setdefault(path, []).append(watch)
            stat = ZkStat(version=node.version, czxid=node.czxid, ephemeral_owner=node.owner)
            return ZkReply(status=ZkStatus.OK, data=node.data, stat=stat)

        self._submit(do, on_reply)

    def create(
        self,
        path: str,
        data: bytes,
        on_reply: ZkCallback,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> None:
        assert not sequence
        op = ZkOp(kind=ZkOpKind.CREATE, path=path, data=data, ephemeral=ephemeral)
        self.multi([op], on_reply)

    def multi(self, operations: Sequence[ZkOp], on_reply: ZkCallback) -> None:
        def do() -> ZkReply:
            for index, op in enumerate(operations):
                status = self._would(op)
                if status is not ZkStatus.OK:
                    return ZkReply(status=status, failed=index)
            for op in operations:
                self.server.apply(op, self._id)
            return ZkReply(status=ZkStatus.OK)

        self._submit(do, on_reply)

    exists = get

    def set(self, path: str, data: bytes, version: int, on_reply: ZkCallback) -> None:
        self.multi([ZkOp(kind=ZkOpKind.SET, path=path, data=data, version=version)], on_reply)

    def children(self, *_args: object, **_options: object) -> None:
        raise NotImplementedError

    delete = children

    def _would(self, op: ZkOp) -> ZkStatus:
        node = self.server.nodes.get(op.path)
        if op.kind is ZkOpKind.CREATE:
            return ZkStatus.OK if node is None else ZkStatus.NODE_EXISTS
        if node is None:
            return ZkStatus.NO_NODE
        return ZkStatus.OK if op.version in (-1, node.version) else ZkStatus.BAD_VERSION

    def _submit(self, do: Callable[[], ZkReply], on_reply: ZkCallback) -> None:
        session_id = self._id

        def happen() -> None:
            unknown = ZkReply(status=ZkStatus.UNKNOWN)
            if session_id == 0 or session_id != self._id or self.lose_requests:
                self.lose_requests = max(0, self.lose_requests - 1)
                reply = unknown
            else:
                reply = do()
                if self.lose_answers:
                    self.lose_answers -= 1
                    reply = unknown
            self.server.queue.append(lambda: on_reply(reply))

        self.server.queue.append(happen)

    def _open(self) -> None:
        self.server.sessions += 1
        self._id = 1000 + self.server.sessions

    def _tell(self, state: SessionState) -> None:
        for listener in self.listeners:
            self.server.queue.append(lambda listener=listener: listener(state))  # type: ignore[misc]
