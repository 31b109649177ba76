"""A ZooKeeper in memory with all that brokers use, in simulated time.

Fault model: a session may be cut off (its operations wait, those under way are UNKNOWN, its watches
fire), may expire with or without its broker's knowledge, and single writes may be done with their
answer lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from storage_engine.core.ports import (
    SessionState,
    ZkCallback,
    ZkOp,
    ZkOpKind,
    ZkReply,
    ZkStat,
    ZkStatus,
)
from storage_engine.tests.broker.fake_loop import FakeLoop

DELAY_MS = 1
UNKNOWN = ZkReply(status=ZkStatus.UNKNOWN)


@dataclass(slots=True)
class _Node:
    data: bytes
    czxid: int
    mzxid: int
    owner: int
    version: int = 0
    sequence: int = 0

    @property
    def stat(self) -> ZkStat:
        return ZkStat(
            version=self.version, czxid=self.czxid, ephemeral_owner=self.owner, mzxid=self.mzxid
        )


@dataclass(slots=True)
class _Watch:
    session: "FakeSession"
    fire: Callable[[], None]


@dataclass
class FakeZooKeeper:
    """The ensemble."""

    loop: FakeLoop
    nodes: dict[str, _Node] = field(default_factory=dict)
    data_watches: dict[str, list[_Watch]] = field(default_factory=dict)
    child_watches: dict[str, list[_Watch]] = field(default_factory=dict)
    zxid: int = 100
    sessions: int = 0

    def __post_init__(self) -> None:
        self.nodes[""] = _Node(b"", 0, 0, 0)

    def data(self, path: str) -> bytes | None:
        node = self.nodes.get(path)
        return None if node is None else node.data

    def children(self, path: str) -> list[str]:
        prefix = path + "/"
        return sorted(
            p[len(prefix) :]
            for p in self.nodes
            if p.startswith(prefix) and "/" not in p[len(prefix) :]
        )

    def put(self, path: str, data: bytes) -> None:
        """As another program would: create or set."""
        kind = ZkOpKind.SET if path in self.nodes else ZkOpKind.CREATE
        assert self.check(ZkOp(kind=kind, path=path)) is ZkStatus.OK
        self.apply(ZkOp(kind=kind, path=path, data=data), 0)

    def drop(self, path: str) -> None:
        """As another program would."""
        self.apply(ZkOp(kind=ZkOpKind.DELETE, path=path), 0)

    def check(self, op: ZkOp) -> ZkStatus:
        node = self.nodes.get(op.path)
        if op.kind is ZkOpKind.CREATE:
            if node is not None:
                return ZkStatus.NODE_EXISTS
            parent = op.path.rpartition("/")[0]
            return ZkStatus.OK if parent in self.nodes else ZkStatus.NO_NODE
        if node is None:
            return ZkStatus.NO_NODE
        if op.version not in (-1, node.version):
            return ZkStatus.BAD_VERSION
        if op.kind is ZkOpKind.DELETE and self.children(op.path):
            return ZkStatus.NOT_EMPTY
        return ZkStatus.OK

    def apply(self, op: ZkOp, session_id: int) -> None:
        self.zxid += 1
        if op.kind is ZkOpKind.CREATE:
            owner = session_id if op.ephemeral else 0
            if op.sequence:
                op = self._numbered(op)
            self.nodes[op.path] = _Node(op.data, self.zxid, self.zxid, owner)
            self._fire(self.data_watches, op.path)
            self._fire(self.child_watches, op.path.rpartition("/")[0])
        elif op.kind is ZkOpKind.SET:
            node = self.nodes[op.path]
            node.data, node.version, node.mzxid = op.data, node.version + 1, self.zxid
            self._fire(self.data_watches, op.path)
        elif op.kind is ZkOpKind.DELETE:
            del self.nodes[op.path]
            self._fire(self.data_watches, op.path)
            self._fire(self.child_watches, op.path)
            self._fire(self.child_watches, op.path.rpartition("/")[0])

    def multi(self, operations: Sequence[ZkOp], session_id: int) -> ZkReply:
        """One after another, undone as a whole when one is refused."""
        kept = {path: _copy(node) for path, node in self.nodes.items()}
        held = self.data_watches, self.child_watches
        self.data_watches, self.child_watches = {}, {}
        failed: ZkReply | None = None
        for index, op in enumerate(operations):
            status = self.check(op)
            if status is not ZkStatus.OK:
                failed = ZkReply(status=status, value=index)
                break
            if op.kind is not ZkOpKind.CHECK:
                self.apply(op, session_id)
        self.data_watches, self.child_watches = held
        self.nodes = kept
        if failed is not None:
            return failed
        for op in operations:
            if op.kind is not ZkOpKind.CHECK:
                self.apply(op, session_id)
        return ZkReply(status=ZkStatus.OK, value=[])

    def _numbered(self, op: ZkOp) -> ZkOp:
        parent = self.nodes[op.path.rpartition("/")[0]]
        parent.sequence += 1
        return replace(op, path=f"{op.path}{parent.sequence - 1:010d}", sequence=False)

    def drop_session(self, session_id: int) -> None:
        for path in [p for p, n in self.nodes.items() if n.owner == session_id]:
            self.apply(ZkOp(kind=ZkOpKind.DELETE, path=path), 0)

    def _fire(self, watches: dict[str, list[_Watch]], path: str) -> None:
        for watch in watches.pop(path, []):
            watch.session.watch_fired(watch.fire)


def _copy(node: _Node) -> _Node:
    return _Node(node.data, node.czxid, node.mzxid, node.owner, node.version, node.sequence)


class FakeSession:
    """One broker's Coordination, one session after another."""

    def __init__(self, server: FakeZooKeeper, *, timeout_ms: int) -> None:
        self.server = server
        self.loop = server.loop
        self.timeout_ms = timeout_ms
        self.session_id = 0
        self.state = SessionState.LOST
        self.lose_answers = 0
        """So many of the next writes are done, but answered UNKNOWN."""
        self._listeners: list[Callable[[SessionState], None]] = []
        self._backlog: list[Callable[[], None]] = []
        self._cut_off_ms = 0
        self._connection = 0
        self._closed = False
        self._connect()

    # --- life, as the test drives it ---

    @property
    def lease_valid(self) -> bool:
        if self.state is SessionState.CONNECTED:
            return True
        return self.loop.now_ms < self._cut_off_ms + self.timeout_ms

    def cut_off(self) -> None:
        """The connection is lost; after the timeout the server drops the session."""
        self._connection += 1
        self._cut_off_ms = self.loop.now_ms
        self._tell(SessionState.SUSPENDED)
        for watches in (self.server.data_watches, self.server.child_watches):
            for listed in watches.values():
                for watch in [w for w in listed if w.session is self]:
                    listed.remove(watch)
                    self.loop.call_soon(self._guarded(watch.fire))
        session_id, connection = self.session_id, self._connection

        def expire() -> None:
            if connection == self._connection:
                self.server.drop_session(session_id)

        self.loop.call_later(self.timeout_ms, expire)

    def reconnect(self) -> None:
        """The connection is back, in time or not."""
        alive = self.loop.now_ms < self._cut_off_ms + self.timeout_ms
        self._connection += 1
        if not alive:
            self._tell(SessionState.LOST)
            self.session_id = 0
            self._connect()
        self._tell(SessionState.CONNECTED)
        backlog, self._backlog = self._backlog, []
        for send in backlog:
            send()

    def close(self) -> None:
        """The process ends in order: its ephemeral nodes go at once."""
        self._closed = True
        self._connection += 1
        self.server.drop_session(self.session_id)

    def die(self) -> None:
        """The process is killed: the server finds out after the timeout."""
        self._closed = True
        self._connection += 1
        session_id = self.session_id
        self.loop.call_later(self.timeout_ms, lambda: self.server.drop_session(session_id))

    def _connect(self) -> None:
        self.server.sessions += 1
        self.session_id = 1000 + self.server.sessions
        self.state = SessionState.CONNECTED

    def _tell(self, state: SessionState) -> None:
        self.state = state
        for listener in tuple(self._listeners):
            listener(state)

    def _guarded(self, call: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if self._closed else call()

    def watch_fired(self, fire: Callable[[], None]) -> None:
        if self.state is SessionState.CONNECTED:
            self.loop.call_later(DELAY_MS, self._guarded(fire))

    # --- the port ---

    def add_state_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def get(self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None) -> None:
        def do() -> ZkReply:
            node = self.server.nodes.get(path)
            if node is None:
                return ZkReply(status=ZkStatus.NO_NODE)
            self._watch(self.server.data_watches, path, watch)
            return ZkReply(status=ZkStatus.OK, value=node.data, stat=node.stat)

        self._submit(do, on_reply)

    def children(
        self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None
    ) -> None:
        def do() -> ZkReply:
            node = self.server.nodes.get(path)
            if node is None:
                return ZkReply(status=ZkStatus.NO_NODE)
            self._watch(self.server.child_watches, path, watch)
            names = self.server.children(path)
            return ZkReply(status=ZkStatus.OK, value=names, stat=node.stat)

        self._submit(do, on_reply)

    def exists(
        self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None
    ) -> None:
        def do() -> ZkReply:
            self._watch(self.server.data_watches, path, watch)
            node = self.server.nodes.get(path)
            if node is None:
                return ZkReply(status=ZkStatus.NO_NODE)
            return ZkReply(status=ZkStatus.OK, stat=node.stat)

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
        def do() -> ZkReply:
            server, made = self.server, path
            if make_parents:
                self._make_parents(path)
            parent = server.nodes.get(path.rpartition("/")[0])
            if sequence and parent is not None:
                made = f"{path}{parent.sequence:010d}"
                parent.sequence += 1
            op = ZkOp(kind=ZkOpKind.CREATE, path=made, data=data, ephemeral=ephemeral)
            status = server.check(op)
            if status is not ZkStatus.OK:
                return ZkReply(status=status)
            server.apply(op, self.session_id)
            return ZkReply(status=ZkStatus.OK, value=made, stat=server.nodes[made].stat)

        self._submit(do, on_reply, writes=True)

    def set(self, path: str, data: bytes, version: int, on_reply: ZkCallback) -> None:
        op = ZkOp(kind=ZkOpKind.SET, path=path, data=data, version=version)
        self._submit(lambda: self._one(op), on_reply, writes=True)

    def delete(self, path: str, version: int, on_reply: ZkCallback) -> None:
        op = ZkOp(kind=ZkOpKind.DELETE, path=path, version=version)
        self._submit(lambda: self._one(op), on_reply, writes=True)

    def multi(self, operations: Sequence[ZkOp], on_reply: ZkCallback) -> None:
        wanted = list(operations)
        self._submit(lambda: self.server.multi(wanted, self.session_id), on_reply, writes=True)

    # --- the way of an operation ---

    def _one(self, op: ZkOp) -> ZkReply:
        status = self.server.check(op)
        if status is not ZkStatus.OK:
            return ZkReply(status=status)
        self.server.apply(op, self.session_id)
        node = self.server.nodes.get(op.path)
        return ZkReply(status=ZkStatus.OK, stat=node.stat if node else None)

    def _make_parents(self, path: str) -> None:
        parts = path.split("/")[1:-1]
        for depth in range(1, len(parts) + 1):
            parent = "/" + "/".join(parts[:depth])
            if parent not in self.server.nodes:
                self.server.apply(ZkOp(kind=ZkOpKind.CREATE, path=parent), 0)

    def _watch(self, watches: dict[str, list[_Watch]], path: str, watch: Any) -> None:
        if watch is not None:
            watches.setdefault(path, []).append(_Watch(self, watch))

    def _submit(
        self, do: Callable[[], ZkReply], on_reply: ZkCallback, *, writes: bool = False
    ) -> None:
        if self._closed:
            return
        answered = False

        def answer(reply: ZkReply) -> None:
            nonlocal answered
            if not answered and not self._closed:
                answered = True
                on_reply(reply)

        def send() -> None:
            connection = self._connection

            def arrive() -> None:
                if connection != self._connection:
                    self.loop.call_soon(lambda: answer(UNKNOWN))
                    return
                reply = do()
                if writes and self.lose_answers:
                    self.lose_answers -= 1
                    reply = UNKNOWN
                self.loop.call_later(
                    DELAY_MS,
                    lambda: answer(reply if connection == self._connection else UNKNOWN),
                )

            self.loop.call_later(DELAY_MS, arrive)

        if self.state is SessionState.CONNECTED:
            send()
        elif self.state is SessionState.LOST:
            self.loop.call_soon(lambda: answer(UNKNOWN))
        else:
            self._backlog.append(send)
