"""The listening sockets of a broker and their connections, all on one event loop.

The limits stand for all listeners together. The server knows frames, not requests; an error of a
client ends that client's connection and nothing else. Source: R-NET1, R-NET3.
"""

import asyncio
import contextlib
import errno
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from storage_engine.core.errors import HeadraceError
from storage_engine.net.acceptor import Acceptor
from storage_engine.net.client_log import ClientLog
from storage_engine.net.connection import Connection
from storage_engine.net.limits import ServerLimits
from storage_engine.net.serving import ServedListener, Serving

if TYPE_CHECKING:
    from storage_engine.net.tls.handshakes import Handshakes

log = ClientLog(__name__, each=1)

ABORT_MS = 200
"""How long an aborted connection may take to be gone: two turns of the event loop, in a busy
process."""

_IDLE_SWEEPS = 4
"""An idle connection is found at the latest a quarter of `connections.max.idle.ms` too late."""


class Server(Serving[Connection]):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listeners: Sequence[ServedListener[Connection]],
        limits: ServerLimits | None = None,
    ) -> None:
        super().__init__(loop, limits or ServerLimits())
        self._listeners = tuple(listeners)
        self.ports = {listener.name: listener.port for listener in listeners}
        """The port of each listener by its name; while it listens, the actual one."""
        self.connections: dict[Connection, int] = {}
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._bound: list[asyncio.Server] = []
        self._acceptors: list[Acceptor] = []
        self._joining: set[asyncio.Task[None]] = set()
        """The tasks in which the loop makes transports for connections."""
        self._arriving = 0
        """Connections that are accepted and not opened yet. A task ends some time after its
        connection is opened, which must not take two places meanwhile."""
        self._handshakes: Handshakes | None = None
        if any(listener.tls is not None for listener in listeners):
            self._handshakes = self._make_handshakes()
        self.opened_counts: Counter[str] = Counter()
        """The number of connections opened since the start, by listener name."""
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_gone = asyncio.Event()

    def _make_handshakes(self) -> "Handshakes":
        # Only a server with TLS loads the library.
        from storage_engine.net.tls.handshakes import Handshakes

        return Handshakes(
            self.loop,
            self.limits,
            open_from=lambda host: self._per_host[host],
            protocol=partial(Connection, self),
        )

    async def start(self) -> None:
        """Listen. HeadraceError when an address can't be had."""
        for listener in self._listeners:
            try:
                await self._listen(listener)
            except OSError as error:
                self._stop_listening()
                raise HeadraceError(_listen_problem(listener, error)) from None
        if self.limits.idle_max_ms >= 0:
            self._sweep_later()

    async def _listen(self, listener: ServedListener[Connection]) -> None:
        bound = await self.loop.create_server(
            partial(Connection, self, listener),
            listener.host or None,
            listener.port,
            start_serving=False,
        )
        self._bound.append(bound)
        self.ports[listener.name] = bound.sockets[0].getsockname()[1]
        take = partial(self._accepted, listener)
        self._acceptors.append(Acceptor(self.loop, bound, take, listener.rate))

    def _stop_listening(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        for bound in self._bound:
            bound.close()

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.ports[self._listeners[0].name]

    async def close(self, grace_ms: int = 1000) -> None:
        """Listen no more; give answers that are under way `grace_ms`, then close every
        connection."""
        self._stop_listening()
        if self._handshakes is not None:
            self._handshakes.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for task in self._joining:
            task.cancel()
        for connection in list(self.connections):
            connection.drain()
        await self._until_all_gone(grace_ms)
        for connection in list(self.connections):
            connection.abort()
        await self._until_all_gone(ABORT_MS)

    async def _until_all_gone(self, timeout_ms: int) -> None:
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), timeout_ms / 1000)

    def open_count(self, listener: str) -> int:
        return self._per_listener[listener]

    def limit_addresses(self, most: int, overrides: Mapping[str, int]) -> None:
        """Other limits of what one address may have, from the next connection on."""
        self.limits = replace(self.limits, max_connections_per_ip=most, per_ip_overrides=overrides)
        if self._handshakes is not None:
            self._handshakes.limits = self.limits

    # Connections that come.

    def _accepted(self, listener: ServedListener[Connection], sock: socket.socket) -> None:
        if not self._has_room(listener):
            # Before anything is made for it: a crowd must cost no more than this.
            sock.close()
            log.warning(
                listener.name,
                "connection closed reason=there are max.connections=%d already",
                self._most(listener),
            )
            return
        if listener.tls is not None:
            assert self._handshakes is not None
            self._handshakes.begin(listener, sock)
            return
        self._arriving += 1
        task = self.loop.create_task(self._join(listener, sock))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    def _has_room(self, listener: ServedListener[Connection]) -> bool:
        """Whether there may be another connection of that listener. A broker's connection replaces
        a client's that was silent for long (KIP-612)."""
        own = self._per_listener[listener.name]
        if listener.max_connections is not None and own >= listener.max_connections:
            return False
        count = len(self.connections) + self._arriving + len(self._handshakes or ())
        if count < self.limits.max_connections:
            return True
        return listener.is_for_brokers and self._end_a_clients_connection()

    def _most(self, listener: ServedListener[Connection]) -> int:
        own = listener.max_connections
        most = self.limits.max_connections
        return most if own is None else min(own, most)

    def _end_a_clients_connection(self) -> bool:
        """Ends the client connection that was silent for longest; False where there is none."""
        clients = (
            each for each in self.connections if each.is_open and not each.listener.is_for_brokers
        )
        oldest = max(
            clients, key=lambda each: (self.connections[each], not each.active), default=None
        )
        if oldest is None:
            return False
        log.info(
            oldest.peer_host,
            "connection closed connection=%s reason=a broker needs its place",
            oldest.name,
        )
        oldest.abort()
        return True

    async def _join(self, listener: ServedListener[Connection], sock: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(partial(Connection, self, listener), sock)
        except OSError as error:
            self._arriving -= 1
            log.info(listener.name, "connection lost before it was accepted: %s", error)
            sock.close()

    # What connections call.

    def opened(self, connection: Connection) -> None:
        """Admit a connection, or close it where there are too many."""
        if connection.listener.tls is not None:
            assert self._handshakes is not None
            self._handshakes.opened(connection)
        else:
            self._arriving -= 1
        host = connection.peer_host
        limits = self.limits
        self.connections[connection] = 0
        self._all_gone.clear()
        self._per_host[host] += 1
        self._per_listener[connection.listener_name] += 1
        self.opened_counts[connection.listener_name] += 1
        per_ip = limits.per_ip_overrides.get(host, limits.max_connections_per_ip)
        if self._per_host[host] > per_ip:
            connection.close(f"{host} has max.connections.per.ip={per_ip} already")
        elif connection.listener.on_opened is not None:
            connection.listener.on_opened(connection)

    def lost(self, connection: Connection) -> None:
        if self.connections.pop(connection, None) is None:
            return
        host = connection.peer_host
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]
        self._per_listener[connection.listener_name] -= 1
        self.crowded.discard(connection)
        self.short_of_memory.pop(connection, None)
        if not self.connections:
            self._all_gone.set()

    # Idle connections.

    def _sweep_later(self) -> None:
        delay_s = self.limits.idle_max_ms / _IDLE_SWEEPS / 1000
        self._sweep_timer = self.loop.call_later(delay_s, self._sweep)

    def _sweep(self) -> None:
        for connection, silent_sweeps in list(self.connections.items()):
            if connection.active:
                connection.active = False
                self.connections[connection] = 0
            elif silent_sweeps + 1 < _IDLE_SWEEPS:
                self.connections[connection] = silent_sweeps + 1
            else:
                connection.on_silence()
        self._sweep_later()


def _listen_problem(listener: ServedListener[Connection], error: OSError) -> str:
    host, name = listener.host, listener.name
    where = f"{host or '*'}:{listener.port}"
    if error.errno == errno.EADDRINUSE or "address already in use" in str(error):
        return (
            f"can't listen on {where}: the port is in use; stop what listens there, or choose "
            f"another port with listeners={name}://{host}:PORT"
        )
    if error.errno == errno.EACCES:
        return f"can't listen on {where}: no permission; choose a port above 1023 with listeners="
    reason = error.strerror or str(error)
    return f"can't listen on {where}: {reason}; check the host and port in listeners="
