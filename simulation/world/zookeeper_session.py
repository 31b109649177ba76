"""One broker's MetadataStore over the simulated ensemble, one session after another.

Fault model: a session may be cut off (its operations wait, those under way are UNKNOWN, its watches
fire), may expire with or without its broker's knowledge, may be closed by another broker, and
single writes may be done with their answer lost. Messages keep their order within a connection,
watches included. A stopped process sends no heartbeat, so its session expires, and hears of it when
it runs again.
"""

from collections.abc import Callable, Sequence

from simulation.world.zookeeper import Node, SimulatedZooKeeper, Watches
from storage_engine.core.ports import (
    Scheduler,
    SessionState,
    ZkCallback,
    ZkOp,
    ZkOpKind,
    ZkReply,
    ZkStatus,
)
from storage_engine.core.printable import is_text

UNKNOWN = ZkReply(status=ZkStatus.UNKNOWN)
RECONNECT_MS = 50
"""The pause before a connection that was lost is made again."""
ILLEGAL = ZkReply(status=ZkStatus.ILLEGAL)


class SimulatedSession:
    """Invariant: while the lease is valid, the server has not dropped the session, unless another
    broker has closed it, of which this one hears when it is connected."""

    def __init__(
        self, server: SimulatedZooKeeper, scheduler: Scheduler, *, timeout_ms: int
    ) -> None:
        """`scheduler` is the broker's own, so that callbacks wait while the broker is stopped."""
        self.server = server
        self.timeout_ms = timeout_ms
        self.session_id = 0
        self.state = SessionState.LOST
        self.delay_ms = server.delay_ms
        """The delay of each message, either way."""
        self.hear_delay_ms: Callable[[], int] | None = None
        """The delay of messages from the server, where it differs."""
        self.lose_answers = 0
        """The number of writes to come that are done, but answered UNKNOWN."""
        self.can_connect: Callable[[], bool] = lambda: True
        """Whether the broker's machine reaches the server."""
        self._loop = server.loop
        self._scheduler = scheduler
        self._listeners: list[Callable[[SessionState], None]] = []
        self._backlog: list[tuple[Callable[[], None], Callable[[], None]]] = []
        """How to send and how to refuse each operation, while cut off."""
        self._silent_since_ms: int | None = None
        """The time since when the server has received nothing of this session."""
        self._connection = 0
        self._arrives = False
        self._silences = 0
        self._sent_due_ms = 0
        self._heard_due_ms = 0
        self._closed = False
        self._connect()

    @property
    def lease_valid(self) -> bool:
        if self.state is SessionState.LOST:
            return False
        silent_since_ms = self._silent_since_ms
        return silent_since_ms is None or self._loop.now_ms < silent_since_ms + self.timeout_ms

    def cut_off(self, *, arrives: bool = False) -> None:
        """Lose the connection; after the timeout the server drops the session. With `arrives`, the
        writes under way are done all the same."""
        self._arrives = arrives
        self._connection += 1
        self._fall_silent()
        self._report_state(SessionState.SUSPENDED)
        self._fire_watches()

    def reconnect(self) -> None:
        """Bring the connection back, in time or not."""
        alive = self.lease_valid and self.session_id in self.server.live
        self._connection += 1
        self._resume_heartbeat()
        if not alive:
            backlog, self._backlog = self._backlog, []
            for _, refuse in backlog:
                self._scheduler.call_soon(refuse)
            self._report_state(SessionState.LOST)
            self._connect()
        self._report_state(SessionState.CONNECTED)
        backlog, self._backlog = self._backlog, []
        for send, _ in backlog:
            send()

    def pause(self) -> None:
        """Stop sending heartbeats, because the process is stopped."""
        if self._silent_since_ms is None:
            self._fall_silent()

    def resume(self) -> None:
        """Resume with the process: its lease does not hold before the server has answered."""
        if self.state is not SessionState.CONNECTED or self._closed:
            return
        silence = self._silences
        silent_since_ms = self._silent_since_ms
        assert silent_since_ms is not None

        def heartbeat_answered() -> None:
            if silence != self._silences or self._closed:
                return
            in_time = self._loop.now_ms < silent_since_ms + self.timeout_ms
            if in_time and self.session_id in self.server.live:
                self._resume_heartbeat()
            else:
                self._fire_watches()
                self.reconnect()

        delay_ms = 2 * self.delay_ms()
        self._loop.call_later(delay_ms, lambda: self._scheduler.call_soon(heartbeat_answered))

    def close(self) -> None:
        """End with the process in order: its ephemeral nodes go at once."""
        self._closed = True
        self._connection += 1
        self._silences += 1
        self.server.drop_session(self.session_id)

    def die(self) -> None:
        """End with a killed process: the server finds out after the timeout."""
        self._closed = True
        self._connection += 1
        if self._silent_since_ms is None:
            self._fall_silent()

    def _connect(self) -> None:
        self.session_id = session_id = self.server.new_session()
        self.state = SessionState.CONNECTED
        self.server.closed_by_others = {
            **{k: v for k, v in self.server.closed_by_others.items() if k in self.server.live},
            session_id: lambda: self._receive(lambda: self._closed_by_another(session_id)),
        }

    def _closed_by_another(self, session_id: int) -> None:
        """Called when the server has ended the connection; the next one finds no session."""
        is_connected = self.state is SessionState.CONNECTED and self.session_id == session_id
        if self._closed or not is_connected:
            return
        self.cut_off()

        def again() -> None:
            if self._closed or self.state is not SessionState.SUSPENDED:
                return
            if self.can_connect():
                self.reconnect()
            else:
                self._scheduler.call_later(RECONNECT_MS, again)

        self._scheduler.call_later(RECONNECT_MS + 2 * self.delay_ms(), again)

    @property
    def session_password(self) -> bytes:
        return self.server.password_of(self.session_id) if self.session_id else b""

    def _fall_silent(self) -> None:
        """Send no heartbeat from now on: the server waits for the timeout."""
        if self._silent_since_ms is None:
            self._silent_since_ms = self._loop.now_ms
        self._silences += 1
        session_id, silence = self.session_id, self._silences
        left_ms = self._silent_since_ms + self.timeout_ms - self._loop.now_ms

        def expire() -> None:
            if silence == self._silences:
                self.server.drop_session(session_id)

        self._loop.call_later(max(0, left_ms), expire)

    def _resume_heartbeat(self) -> None:
        self._silent_since_ms = None
        self._silences += 1

    def _report_state(self, state: SessionState) -> None:
        self.state = state
        if state is SessionState.LOST:
            self.session_id = 0
        for listener in tuple(self._listeners):
            listener(state)

    def _fire_watches(self) -> None:
        """Fire the watches that are lost with the connection, so that their owners read again."""
        for watches in (self.server.data_watches, self.server.child_watches):
            for path, listed in watches.items():
                mine = [fire for session, fire in listed if session is self]
                if mine:
                    watches[path] = [entry for entry in listed if entry[0] is not self]
                    for fire in mine:
                        self._scheduler.call_soon(self._guarded(fire))

    def _guarded(self, call: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if self._closed else call()

    def watch_fired(self, fire: Callable[[], None]) -> None:
        """Send a watch's event from the server."""
        if self.state is not SessionState.CONNECTED or self._closed:
            return
        # If the connection broke on the way, its owner would read again just the same.
        self._receive(self._guarded(fire))

    def add_state_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def get(self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None) -> None:
        def answer(node: Node) -> ZkReply:
            return ZkReply(status=ZkStatus.OK, data=node.data, stat=node.stat)

        self._read(path, self.server.data_watches, watch, answer, on_reply)

    def children(
        self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None
    ) -> None:
        def answer(node: Node) -> ZkReply:
            names = self.server.children(path)
            return ZkReply(status=ZkStatus.OK, children=names, stat=node.stat)

        self._read(path, self.server.child_watches, watch, answer, on_reply)

    def exists(
        self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None
    ) -> None:
        def answer(node: Node) -> ZkReply:
            return ZkReply(status=ZkStatus.OK, stat=node.stat)

        self._read(path, self.server.data_watches, watch, answer, on_reply, watches_absent=True)

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
        op = ZkOp(
            kind=ZkOpKind.CREATE, path=path, data=data, ephemeral=ephemeral, sequence=sequence
        )

        def do(session_id: int) -> ZkReply:
            if make_parents:
                self.server.make_parents(path)
            return self.server.one(op, session_id)

        self._submit(path, do, on_reply, writes=True)

    def set(self, path: str, data: bytes, version: int, on_reply: ZkCallback) -> None:
        op = ZkOp(kind=ZkOpKind.SET, path=path, data=data, version=version)
        self._submit(path, lambda own: self.server.one(op, own), on_reply, writes=True)

    def delete(self, path: str, version: int, on_reply: ZkCallback) -> None:
        op = ZkOp(kind=ZkOpKind.DELETE, path=path, version=version)
        self._submit(path, lambda own: self.server.one(op, own), on_reply, writes=True)

    def multi(self, operations: Sequence[ZkOp], on_reply: ZkCallback) -> None:
        wanted = list(operations)
        paths = " ".join(op.path for op in wanted)
        self._submit(paths, lambda own: self.server.multi(wanted, own), on_reply, writes=True)

    def _read(
        self,
        path: str,
        watches: Watches,
        watch: Callable[[], None] | None,
        answer: Callable[[Node], ZkReply],
        on_reply: ZkCallback,
        *,
        watches_absent: bool = False,
    ) -> None:
        def do(_session_id: int) -> ZkReply:
            node = self.server.nodes.get(path)
            if watch is not None and (node is not None or watches_absent):
                watches.setdefault(path, []).append((self, watch))
            return ZkReply(status=ZkStatus.NO_NODE) if node is None else answer(node)

        self._submit(path, do, on_reply)

    def _receive(self, callback: Callable[[], None]) -> None:
        """Receive something from the server, after what it sent before."""
        now_ms = self._loop.now_ms
        delay_ms = self.hear_delay_ms or self.delay_ms
        self._heard_due_ms = max(self._heard_due_ms, now_ms + delay_ms())
        self._scheduler.call_later(self._heard_due_ms - now_ms, callback)

    def _submit(
        self, path: str, do: Callable[[int], ZkReply], on_reply: ZkCallback, *, writes: bool = False
    ) -> None:
        """Carry out an operation; `do` gets the id of the session that asks."""
        if self._closed:
            return
        if not is_text(path):
            # A real session does the same.
            self._scheduler.call_soon(self._guarded(lambda: on_reply(ILLEGAL)))
            return
        answered = False

        def answer(reply: ZkReply) -> None:
            nonlocal answered
            if not answered and not self._closed:
                answered = True
                on_reply(reply)

        def send() -> None:
            connection, session_id = self._connection, self.session_id

            def arrive() -> None:
                heard = session_id in self.server.live
                if connection != self._connection or not heard:
                    if writes and heard and self._arrives:
                        do(session_id)
                    self._scheduler.call_soon(lambda: answer(UNKNOWN))
                    return
                reply = do(session_id)
                if writes and self.lose_answers:
                    self.lose_answers -= 1
                    reply = UNKNOWN
                self._receive(lambda: answer(reply if connection == self._connection else UNKNOWN))

            now_ms = self._loop.now_ms
            self._sent_due_ms = max(self._sent_due_ms, now_ms + self.delay_ms())
            self._loop.call_later(self._sent_due_ms - now_ms, arrive)

        if self.state is SessionState.CONNECTED:
            send()
        elif self.state is SessionState.LOST:
            self._scheduler.call_soon(lambda: answer(UNKNOWN))
        else:
            self._backlog.append((send, lambda: answer(UNKNOWN)))
