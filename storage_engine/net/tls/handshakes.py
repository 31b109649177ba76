"""The TLS connections of a server whose handshake is not over. A handshake begins when the client's
first message is there, whole; only a few begin in each turn of the loop.

    accepted -> waits for a record's head, then for all of it -> its turn -> the handshake
             -> no TLS, gone, or silent for too long          -> closed

To answer a first message the server signs, which takes up to some milliseconds: a thousand clients
that come at once must not be served in one turn. A client that says nothing has cost a descriptor
and a timer. Its bytes stay in the socket, which becomes readable when enough of them are there
(SO_RCVLOWAT).

Connections in their handshakes count for `max.connections` and `max.connections.per.ip`; together
they are at most half of `max.connections`, so that clients that never get further leave places for
others. Each step has a time limit. Failures with the same reason are logged in one line each 10 s,
with the number of the failures that have no line. Source: RFC 8446, section 5.1.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from storage_engine.net.client_log import ClientLog
from storage_engine.net.limits import (
    HALF_OPEN_PART,
    HANDSHAKE_TIMEOUT_MS,
    TLS_SHUTDOWN_TIMEOUT_MS,
    ServerLimits,
)
from storage_engine.net.tls.contexts import on_refused

if TYPE_CHECKING:
    from storage_engine.net.connection import Connection
    from storage_engine.net.serving import ServedListener

    Listener = ServedListener[Connection]


_HEAD_BYTES = 5
_HANDSHAKE = 22
"""The type of a record that holds a first message."""
_RECORD_MAX_BYTES = 2**14
"""The largest content of a record that is not encrypted."""


class HelloGate:
    """The clients of one listener that have not begun their handshake."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        per_turn: Callable[[], int],
        admit: Callable[[socket.socket], None],
        refuse: Callable[[socket.socket, str], None],
    ) -> None:
        """`admit` begins a handshake; `refuse` gets the reason. Either owns the socket from then
        on."""
        self._loop = loop
        self._per_turn = per_turn
        self._admit = admit
        self._refuse = refuse
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._ready: deque[socket.socket] = deque()
        self._is_admitting = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._ready)

    def wait(self, sock: socket.socket) -> None:
        """Wait for the client's first message, then admit it in its turn."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _HEAD_BYTES)
        self._waiting[sock] = self._loop.call_later(
            HANDSHAKE_TIMEOUT_MS / 1000, self._give_up, sock, "it was silent for too long"
        )
        self._loop.add_reader(sock.fileno(), self._look, sock)

    def close(self) -> None:
        """Refuse all clients that wait."""
        for sock in list(self._waiting):
            self._give_up(sock, "the broker stops")
        while self._ready:
            self._refuse(self._ready.popleft(), "the broker stops")

    def _look(self, sock: socket.socket) -> None:
        """Called when the awaited bytes are there, or the client is gone."""
        try:
            head = sock.recv(_HEAD_BYTES, socket.MSG_PEEK)
            if len(head) < _HEAD_BYTES:
                self._give_up(sock, "it has gone before it said anything")
                return
            size = int.from_bytes(head[3:], "big")
            if head[0] != _HANDSHAKE or head[1] != 3 or not 0 < size <= _RECORD_MAX_BYTES:
                self._give_up(sock, "it does not speak TLS: is its security.protocol right?")
                return
            wanted = _HEAD_BYTES + size
            if len(sock.recv(wanted, socket.MSG_PEEK)) < wanted:
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) >= wanted:
                    self._give_up(sock, "it has gone before its first message was there")
                else:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
                return
        except BlockingIOError:
            return
        except OSError as error:
            self._give_up(sock, error.strerror or str(error))
            return
        self._forget(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self._ready.append(sock)
        self._admit_soon()

    def _admit_soon(self) -> None:
        if not self._is_admitting:
            self._is_admitting = True
            self._loop.call_soon(self._admit_some)

    def _admit_some(self) -> None:
        self._is_admitting = False
        for _ in range(min(self._per_turn(), len(self._ready))):
            self._admit(self._ready.popleft())
        if self._ready:
            self._admit_soon()

    def _give_up(self, sock: socket.socket, reason: str) -> None:
        self._forget(sock)
        self._refuse(sock, reason)

    def _forget(self, sock: socket.socket) -> None:
        self._waiting.pop(sock).cancel()
        self._loop.remove_reader(sock.fileno())


_REASONS_TOLD = 8

log = ClientLog("storage_engine.net", each=1, most=_REASONS_TOLD)
"""Logs one line for each reason."""

MakeProtocol = Callable[["Listener"], asyncio.BaseProtocol]


class Handshakes:
    """The connections of all listeners with TLS, up to the end of their handshakes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: ServerLimits,
        open_from: Callable[[str], int],
        protocol: MakeProtocol,
    ) -> None:
        """`open_from`: how many open connections an address has. `protocol` makes the connection
        that comes of a handshake."""
        self._loop = loop
        self.limits = limits
        self._open_from = open_from
        self._protocol = protocol
        self._gates: dict[str, HelloGate] = {}
        self._peers: dict[socket.socket, tuple[str, str]] = {}
        """The address, and the connection's name for the log, by socket."""
        self._sockets: dict[asyncio.BaseProtocol, socket.socket] = {}
        """The socket of each connection whose handshake is under way."""
        self._per_host: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._peers)

    def begin(self, listener: "Listener", sock: socket.socket) -> None:
        """Take a connection that was accepted."""
        try:
            address = sock.getpeername()
        except OSError:
            sock.close()
            return
        host = str(address[0])
        self._peers[sock] = host, f"{host}:{address[1]}"
        self._per_host[host] += 1
        problem = self._problem(listener, host)
        if problem:
            self._fail(listener, sock, problem)
        else:
            self._gate(listener).wait(sock)

    def opened(self, connection: asyncio.BaseProtocol) -> None:
        """Forget a connection whose handshake is over: it counts as an open one now."""
        self._forget(self._sockets[connection])

    def close(self) -> None:
        for gate in self._gates.values():
            gate.close()
        for task in self._tasks:
            task.cancel()

    def _problem(self, listener: "Listener", host: str) -> str:
        limits = self.limits
        per_ip = limits.per_ip_overrides.get(host, limits.max_connections_per_ip)
        if self._open_from(host) + self._per_host[host] > per_ip:
            return f"{host} has max.connections.per.ip={per_ip} already"
        most = max(1, limits.max_connections // HALF_OPEN_PART)
        if len(self._peers) > most and not listener.is_for_brokers:
            return f"{most} others are in their handshakes, half of max.connections"
        return ""

    def _gate(self, listener: "Listener") -> HelloGate:
        gate = self._gates.get(listener.name)
        if gate is None:
            tls = listener.tls
            assert tls is not None
            gate = self._gates[listener.name] = HelloGate(
                self._loop,
                per_turn=lambda: tls.profile.key_store.handshakes_per_turn,
                admit=partial(self._start, listener),
                refuse=partial(self._fail, listener),
            )
        return gate

    def _start(self, listener: "Listener", sock: socket.socket) -> None:
        task = self._loop.create_task(self._shake_hands(listener, sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake_hands(self, listener: "Listener", sock: socket.socket) -> None:
        assert listener.tls is not None
        connection = self._protocol(listener)
        self._sockets[connection] = sock
        ending = _Ending(self._loop, asyncio.current_task())
        on_refused.set(partial(self._refused, listener, sock, ending))
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=listener.tls.server,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_MS / 1000,
                ssl_shutdown_timeout=TLS_SHUTDOWN_TIMEOUT_MS / 1000,
            )
        except OSError as error:
            if sock in self._peers and not ending.has_begun:
                self._fail(listener, sock, _reason(error))
        finally:
            ending.forget()
            del self._sockets[connection]
            self._forget(sock)

    def _refused(
        self,
        listener: "Listener",
        sock: socket.socket,
        ending: "_Ending",
        error: ssl.SSLError,
    ) -> None:
        """Called when the loop sends an alert. The client keeps its place among the handshakes
        until it closes."""
        if sock not in self._peers:
            # The server closes, and it has been given up.
            return
        self._tell(listener, self._peers[sock][1], _reason(error))
        with contextlib.suppress(OSError):
            # What it goes on to say is read to no purpose: the least that the system grants.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        ending.begin()

    def _fail(self, listener: "Listener", sock: socket.socket, reason: str) -> None:
        _, name = self._peers[sock]
        self._forget(sock)
        sock.close()
        self._tell(listener, name, reason)

    def _tell(self, listener: "Listener", name: str, reason: str) -> None:
        log.warning(
            reason,
            "TLS handshake failed connection=%s listener=%s reason=%s",
            name,
            listener.name,
            reason,
        )

    def _forget(self, sock: socket.socket) -> None:
        found = self._peers.pop(sock, None)
        if found is not None:
            host, _ = found
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]


class _Ending:
    """The end of a failed handshake: the client has some time to read the alert and to close."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[None] | None) -> None:
        """`task` makes the connection; it is cancelled when the time is over."""
        self._loop = loop
        self._task = task
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_begun(self) -> bool:
        return self._timer is not None

    def begin(self) -> None:
        if self._task is not None:
            self._timer = self._loop.call_later(TLS_SHUTDOWN_TIMEOUT_MS / 1000, self._task.cancel)

    def forget(self) -> None:
        """Drop the task after the handshake; else it would live as long as the connection."""
        self._task = None
        if self._timer is not None:
            self._timer.cancel()


def _reason(error: OSError) -> str:
    """Why a handshake failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error) or type(error).__name__
