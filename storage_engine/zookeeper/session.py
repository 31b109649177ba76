"""The broker's ZooKeeper session: `core.ports.MetadataStore` over kazoo.

Every method is called on the event loop and every callback comes back on it, exactly once; an
operation without an answer is UNKNOWN, and never repeated here; one on a path that no node can have
is ILLEGAL, for ever.

States:

    LOST ──connected──► CONNECTED ◄──same session──► SUSPENDED
      ▲                     │                            │
      └────── expired ──────┴────────────────────────────┘

- CONNECTED: operations go out, in order.
- SUSPENDED: they wait for the connection, in order; those that were under way are UNKNOWN.
- LOST: they are UNKNOWN at once. kazoo opens a new session by itself, then it is CONNECTED again,
  under another `session_id`; ephemeral nodes have to be made anew.
- A watch is gone when the connection is: it fires then, so that its owner reads again.

Source: R-REP11, R-CTL4.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import KazooState, WatchedEvent

from storage_engine.core.ports import (
    Clock,
    SessionState,
    ZkCallback,
    ZkOp,
    ZkOpKind,
    ZkReply,
    ZkStatus,
)
from storage_engine.core.printable import is_text, printable
from storage_engine.zookeeper import replies
from storage_engine.zookeeper.access import (
    ANYBODY,
    BY_BROKERS,
    Written,
    ZooKeeperAccess,
    ZooKeeperRefusedError,
)
from storage_engine.zookeeper.call_window import MAX_BACKLOG, CallWindow, PendingCall
from storage_engine.zookeeper.connect_string import ConnectString
from storage_engine.zookeeper.foreign_sessions import prepare, unreachable
from storage_engine.zookeeper.kazoo_driver import (
    LoopHandler,
    make_client,
    observe_connects,
    stop_client,
)
from storage_engine.zookeeper.session_credentials import (
    SessionCredentials,
    remove_credentials,
    save_credentials,
)

log = logging.getLogger(__name__)

MAX_ZNODE_BYTES = 1_000_000
"""The limit for requests: ZooKeeper closes the connection when one has more than 1 MiB
(jute.maxbuffer)."""

_KAZOO_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class ZooKeeperSession:
    """A sequence of sessions, for as long as the broker lives."""

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        loop_call_soon: Callable[[Callable[[], None]], object],
        *,
        clock: Clock,
        data_dir: Path | None = None,
        access: ZooKeeperAccess = ANYBODY,
        written: Written = BY_BROKERS,
        on_session: Callable[[SessionCredentials | None], None] | None = None,
    ) -> None:
        """`loop_call_soon` is the loop's `call_soon_threadsafe`. `data_dir` (locked by the caller)
        keeps the session's credentials; without it no predecessor's session is closed. `written`:
        where nodes will be created. `on_session` hears of each session on kazoo's thread, as soon
        as it exists; None: the last one was closed in order."""
        self._access = access
        self._connect = ConnectString.parse(connect)
        self._requested_timeout_ms = session_timeout_ms
        self._loop_call_soon = loop_call_soon
        self._clock = clock
        self._data_dir = data_dir
        self._written = written
        self._on_session = on_session
        self._listeners: list[Callable[[SessionState], None]] = []
        self._calls = CallWindow(self._post, clock, self._on_answer)
        self._closed = False
        # These are the loop's view; kazoo's thread passes changes to it by `_post`.
        self._state = SessionState.LOST
        self._session_id = 0
        self._session_password = b""
        self._session_timeout_ms = session_timeout_ms
        self._last_answer_monotonic_ms = clock.monotonic_ms() - session_timeout_ms
        self.longest_silence_ms = 0
        """The longest time without an answer since the first connection: a session that is not
        longer would have been lost."""
        # Owned by kazoo's thread: the newest connect request, and the session it saved last.
        self._connect_sent_monotonic_ms = 0
        self._negotiated_timeout_ms = session_timeout_ms
        self._saved_session_id = self._told_session_id = 0
        self._client = self._make_client()

    def start(self, timeout_ms: int) -> None:
        """Close the predecessor's session, create the chroot, open a session; blocks at most about
        `timeout_ms`. ZooKeeperUnreachableError when no server answers, ZooKeeperRefusedError when
        nodes may not be created; the session is closed then."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        prepare(
            self._connect,
            self._data_dir,
            self._requested_timeout_ms,
            access=self._access,
            wait_ms=timeout_ms,
        )
        connected = self._client.start_async()
        if not connected.wait(max(0, deadline_ms - self._clock.monotonic_ms()) / 1000):
            self._closed = True
            stop_client(self._client, 0)
            raise unreachable(self._connect, self._client, self._access)
        try:
            self._access.check(self._client, self._written)
        except ZooKeeperRefusedError:
            self.close()
            raise
        if self._access.set_acl and not self._connect.chroot:
            log.warning(
                "zookeeper.set.acl does not keep strangers from removing nodes of ZooKeeper's "
                "root: give zookeeper.connect a path, such as %s/headrace",
                self._connect.hosts,
            )
        # `_on_state` reports it to the loop too, but operations may come before its next turn.
        self._state = SessionState.CONNECTED
        self._session_id = int(self._client._session_id or 0)
        self._session_password = bytes(self._client._session_passwd)
        self._session_timeout_ms = self._negotiated_timeout_ms
        self._on_answer(self._connect_sent_monotonic_ms)
        self.longest_silence_ms = 0
        if self._session_timeout_ms != self._requested_timeout_ms:
            bound = "min" if self._session_timeout_ms > self._requested_timeout_ms else "max"
            log.warning(
                "session timeout is %d ms, not zookeeper.session.timeout.ms=%d: ZooKeeper allows "
                "no other; set %sSessionTimeout=%d in its zoo.cfg, or the broker's to %d",
                self._session_timeout_ms,
                self._requested_timeout_ms,
                bound,
                self._requested_timeout_ms,
                self._session_timeout_ms,
            )

    def close(self, timeout_ms: int = 5_000) -> None:
        """Close the session, so that its ephemeral nodes vanish at once; blocks at most
        `timeout_ms`. Operations under way are UNKNOWN; listeners and watches are not called any
        more."""
        if self._closed:
            return
        self._closed = True
        self._calls.refuse_all()
        if stop_client(self._client, timeout_ms):
            if self._data_dir is not None:
                remove_credentials(self._data_dir)
            if self._on_session is not None:
                self._on_session(None)
        self._session_id, self._session_password = 0, b""

    @property
    def session_id(self) -> int:
        """The id of the present session; 0 when there is none."""
        return self._session_id

    @property
    def session_password(self) -> bytes:
        """The password that closes the present session, with its id; empty without a session."""
        return self._session_password

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def session_timeout_ms(self) -> int:
        """The negotiated timeout: ZooKeeper may allow less or demand more than was requested."""
        return self._session_timeout_ms

    @property
    def lease_end_monotonic_ms(self) -> int:
        """The time from which on the session may have expired and another broker may lead."""
        return self._last_answer_monotonic_ms + self._session_timeout_ms

    def add_state_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def get(self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None) -> None:
        """Read a node. The watch is set only when the node exists: it fires on change and
        deletion."""
        send = functools.partial(self._client.get_async, path, watch=self._watcher(watch))
        self._submit("get", path, send, replies.from_get, on_reply)

    def children(
        self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None
    ) -> None:
        """Read the sorted names of a node's children. The watch is set only when the node
        exists."""
        send = functools.partial(
            self._client.get_children_async, path, watch=self._watcher(watch), include_data=True
        )
        self._submit("children", path, send, replies.from_children, on_reply)

    def exists(
        self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None
    ) -> None:
        """Check for a node: NO_NODE when it is absent. The watch fires on its creation too."""
        send = functools.partial(self._client.exists_async, path, watch=self._watcher(watch))
        self._submit("exists", path, send, replies.from_exists, on_reply)

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
        """Create a node; the reply has its path and its stat."""
        send = functools.partial(
            self._client.create_async,
            path,
            data,
            acl=self._access.acl_of(path),
            ephemeral=ephemeral,
            sequence=sequence,
            makepath=make_parents,
            include_data=True,
        )
        self._submit("create", path, send, replies.from_create, on_reply, size_bytes=len(data))

    def set(self, path: str, data: bytes, version: int, on_reply: ZkCallback) -> None:
        """Write a node; version -1 matches any. The reply has the new stat."""
        send = functools.partial(self._client.set_async, path, data, version)
        self._submit("set", path, send, replies.from_set, on_reply, size_bytes=len(data))

    def delete(self, path: str, version: int, on_reply: ZkCallback) -> None:
        """Delete a node; version -1 matches any."""
        send = functools.partial(self._client.delete_async, path, version)
        self._submit("delete", path, send, replies.from_delete, on_reply)

    def multi(self, operations: Sequence[ZkOp], on_reply: ZkCallback) -> None:
        """Carry out all operations or none. On failure `status` is that of the operation that
        failed, and `failed` is its index."""
        if not operations:
            self._post(lambda: on_reply(ZkReply(status=ZkStatus.OK)))
            return
        transaction = self._client.transaction()
        for operation in operations:
            _add(transaction, operation, self._access)
        path = " ".join(operation.path for operation in operations)
        size_bytes = sum(len(operation.data) for operation in operations)
        self._submit(
            "multi",
            path,
            transaction.commit_async,
            replies.from_multi,
            on_reply,
            size_bytes=size_bytes,
        )

    def _submit(
        self,
        name: str,
        path: str,
        send: Callable[[], IAsyncResult],
        decode: Callable[[Any], ZkReply],
        on_reply: ZkCallback,
        *,
        size_bytes: int = 0,
    ) -> None:
        call = PendingCall(name=name, path=path, send=send, decode=decode, on_reply=on_reply)
        problem, refusal = self._why_not(path, size_bytes), replies.UNKNOWN
        if problem is None and not is_text(path):
            # An exception would end kazoo's thread.
            problem, refusal = "the path has no form in UTF-8", replies.ILLEGAL
        if problem is None:
            self._calls.submit(call)
        else:
            log.warning(
                "zookeeper %s not sent path=%.200s reason=%s", name, printable(path), problem
            )
            self._calls.refuse(call, refusal)

    def _why_not(self, path: str, size_bytes: int) -> str | None:
        if self._closed:
            return "the session is closed"
        if self._state is SessionState.LOST:
            return "the session is lost"
        if self._calls.is_full:
            return f"{MAX_BACKLOG} operations are waiting already"
        if size_bytes > MAX_ZNODE_BYTES:
            return f"{size_bytes} bytes are more than ZooKeeper takes"
        return None

    def _on_answer(self, sent_monotonic_ms: int) -> None:
        silence_ms = self._clock.monotonic_ms() - self._last_answer_monotonic_ms
        self.longest_silence_ms = max(self.longest_silence_ms, silence_ms)
        self._last_answer_monotonic_ms = max(self._last_answer_monotonic_ms, sent_monotonic_ms)

    def _watcher(self, watch: Callable[[], None] | None) -> Callable[[WatchedEvent], None] | None:
        if watch is None:
            return None
        armed = True

        def fire(_event: WatchedEvent) -> None:
            nonlocal armed
            if armed and not self._closed:
                armed = False
                watch()

        return fire

    def _on_connect(self, sent_monotonic_ms: int, negotiated_timeout_ms: int) -> None:
        """Record a connection; called on kazoo's thread."""
        if negotiated_timeout_ms > 0:  # else the session has expired
            self._connect_sent_monotonic_ms = sent_monotonic_ms
            self._negotiated_timeout_ms = negotiated_timeout_ms
            self._handler.session_timeout_is(negotiated_timeout_ms)

    def _on_kazoo_state(self, kazoo_state: str) -> None:
        """Pass a change of state to the loop; called on kazoo's thread."""
        session_id = int(self._client._session_id or 0)
        password = bytes(self._client._session_passwd)
        if kazoo_state == KazooState.CONNECTED:
            self._tell(SessionCredentials(session_id=session_id, password=password))
            self._save(session_id, password)
        self._post(
            functools.partial(
                self._on_state,
                _KAZOO_STATES[kazoo_state],
                SessionCredentials(session_id=session_id, password=password),
                self._connect_sent_monotonic_ms,
                self._negotiated_timeout_ms,
            )
        )

    def _on_state(
        self,
        state: SessionState,
        credentials: SessionCredentials,
        connect_sent_ms: int,
        timeout_ms: int,
    ) -> None:
        if self._closed:
            return
        log.info("zookeeper session state=%s id=0x%x", state.value, credentials.session_id)
        if state is SessionState.CONNECTED:
            if self._state is SessionState.LOST:
                # kazoo can lose a request that comes while it drops an expired session.
                self._calls.refuse_all()
            self._session_id = credentials.session_id
            self._session_password = credentials.password
            self._session_timeout_ms = timeout_ms
            self._on_answer(connect_sent_ms)
        elif state is SessionState.LOST:
            self._session_id, self._session_password = 0, b""
            self._calls.refuse_backlog()
        self._state = state
        for listener in tuple(self._listeners):
            try:
                listener(state)
            except Exception:
                # The other listeners must be called all the same: a broker that is not fenced leads
                # on.
                log.exception("session state=%s not processed", state.value)

    def _on_beat(self) -> None:
        if self._state is SessionState.CONNECTED and not self._closed:
            # The heartbeat goes before the backlog: a long queue must not cost the lease.
            send = functools.partial(self._client.exists_async, "/")
            self._calls.send_now(
                PendingCall(
                    name="heartbeat",
                    path="/",
                    send=send,
                    decode=replies.from_exists,
                    on_reply=_ignore,
                )
            )

    def _tell(self, credentials: SessionCredentials) -> None:
        if self._on_session is not None and credentials.session_id != self._told_session_id:
            self._told_session_id = credentials.session_id
            self._on_session(credentials)

    def _save(self, session_id: int, password: bytes) -> None:
        if self._data_dir is None or session_id == self._saved_session_id:
            return
        try:
            credentials = SessionCredentials(session_id=session_id, password=password)
            save_credentials(self._data_dir, credentials)
            self._saved_session_id = session_id
        except OSError as error:
            # Only a quick restart after a crash is slower without the file.
            log.warning("session file not written dir=%s reason=%s", self._data_dir, error)

    def _make_client(self) -> KazooClient:
        handler = self._handler = LoopHandler(
            self._post,
            self._on_beat,
            session_timeout_ms=self._requested_timeout_ms,
            servers=len(self._connect.servers),
            tls=self._access.tls,
        )
        client = make_client(
            str(self._connect),
            session_timeout_ms=self._requested_timeout_ms,
            handler=handler,
            access=self._access,
        )
        handler.watch_over(client)
        observe_connects(
            client,
            self._clock,
            self._on_connect,
            last_answer_ms=lambda: self._last_answer_monotonic_ms,
            session_timeout_ms=self._requested_timeout_ms,
        )
        client.add_listener(self._on_kazoo_state)
        return client

    def _post(self, work: Callable[[], None]) -> None:
        try:
            self._loop_call_soon(work)
        except RuntimeError:
            # The loop is closed: the broker stops.
            log.debug("callback dropped, the event loop is closed")


def _add(transaction: TransactionRequest, operation: ZkOp, access: ZooKeeperAccess) -> None:
    match operation.kind:
        case ZkOpKind.CHECK:
            transaction.check(operation.path, operation.version)
        case ZkOpKind.CREATE:
            transaction.create(
                operation.path,
                operation.data,
                acl=access.acl_of(operation.path),
                ephemeral=operation.ephemeral,
                sequence=operation.sequence,
            )
        case ZkOpKind.SET:
            transaction.set_data(operation.path, operation.data, operation.version)
        case ZkOpKind.DELETE:
            transaction.delete(operation.path, operation.version)


def _ignore(_reply: ZkReply) -> None:
    """Do nothing: the heartbeat's answer was used in `_on_answer`."""
