"""The listening sockets of a broker and their connections, all on one event loop.

The limits stand for all listeners together. The server knows frames, not requests; an error of a
client ends that client's connection and nothing else. Source: R-NET1, R-NET3.
"""

import asyncio
import contextlib
import errno
import socket
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from storage_engine.core.errors import HeadraceError
from storage_engine.net.acceptor import Acceptor
from storage_engine.net.client_log import ClientLog
from storage_engine.net.connection import Connection
from storage_engine.net.frames import ReceiveMemory
from storage_engine.net.limits import TURN_NS, ServerLimits
from storage_engine.net.served_listener import ServedListener

if TYPE_CHECKING:
    from storage_engine.net.tls.handshakes import Handshakes

log = ClientLog(__name__, each=1)

ABORT_MS = 200
"""How long an aborted connection may take to be gone: two turns of the event loop, in a busy
process."""

_IDLE_SWEEPS = 4
"""An idle connection is found at the latest a quarter of `connections.max.idle.ms` too late."""


class Server:
    """Serves one or more listeners."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listeners: Sequence[ServedListener],
        limits: ServerLimits | None = None,
    ) -> None:
        self.loop = loop
        self._listeners = tuple(listeners)
        self.ports = {listener.name: listener.port for listener in listeners}
        """The port of each listener by its name; while it listens, that which it has got."""
        self.limits = limits or ServerLimits()
        self.memory = ReceiveMemory()
        # Unanswered requests of all connections.
        self.pending = 0
        # Connections that are not read because of `queued.max.requests`.
        self.crowded: set[Connection] = set()
        # Bytes of large requests that are being received, and who waits to receive one.
        self.receiving_bytes = 0
        self.short_of_memory: dict[Connection, None] = {}
        self.connections: dict[Connection, int] = {}
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._bound: list[asyncio.Server] = []
        self._acceptors: list[Acceptor] = []
        self._joining: set[asyncio.Task[None]] = set()
        """Connections that the loop is making a transport for."""
        self._handshakes: Handshakes | None = None
        if any(listener.tls is not None for listener in listeners):
            self._handshakes = self._make_handshakes()
        """Connections above `max.connections` that are not logged yet."""
        self._released: list[Connection] = []
        self.opened_counts: Counter[str] = Counter()
        """Connections by the name of their listener, since the start."""
        self.turns = 0
        """Turns of the loop that took up requests, since the start."""
        self.longest_turn_ns = 0
        """The longest of them; whoever reads it sets it back."""
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_gone = asyncio.Event()
        # When this turn of the loop has taken up enough; set by the first request of each.
        self.turn_end_ns = 0
        self._in_turn = False
        # Halted connections that may go on, in the order in which they have stopped.
        self._going_on: deque[Connection] = deque()
        self._is_going_on = False

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

    async def _listen(self, listener: ServedListener) -> None:
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
        """The first listener's."""
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
        """Its open connections."""
        return self._per_listener[listener]

    def limit_addresses(self, most: int, overrides: Mapping[str, int]) -> None:
        """Other limits of what one address may have, from the next connection on."""
        self.limits = replace(self.limits, max_connections_per_ip=most, per_ip_overrides=overrides)
        if self._handshakes is not None:
            self._handshakes.limits = self.limits

    # Connections that come.

    def _accepted(self, listener: ServedListener, sock: socket.socket) -> None:
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
        task = self.loop.create_task(self._join(listener, sock))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    def _has_room(self, listener: ServedListener) -> bool:
        """Whether there may be another connection of that listener. A broker's takes the place of a
        client's that was silent for long (KIP-612)."""
        own = self._per_listener[listener.name]
        if listener.max_connections is not None and own >= listener.max_connections:
            return False
        count = len(self.connections) + len(self._joining) + len(self._handshakes or ())
        if count < self.limits.max_connections:
            return True
        return listener.is_for_brokers and self._end_a_clients_connection()

    def _most(self, listener: ServedListener) -> int:
        own = listener.max_connections
        most = self.limits.max_connections
        return most if own is None else min(own, most)

    def _end_a_clients_connection(self) -> bool:
        """Ends the one that was silent for the longest time, if there is one."""
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

    async def _join(self, listener: ServedListener, sock: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(partial(Connection, self, listener), sock)
        except OSError as error:
            log.info(listener.name, "connection lost before it was taken up: %s", error)
            sock.close()

    # What connections call.

    def opened(self, connection: Connection) -> None:
        """Admit a connection, or close it where there are too many."""
        if connection.listener.tls is not None:
            assert self._handshakes is not None
            self._handshakes.opened(connection)
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
        """A connection is gone."""
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

    def count(self, more: int) -> None:
        """The number of unanswered requests has changed."""
        self.pending += more
        if more < 0 and self.crowded and self.pending < self.limits.queued_max_requests:
            crowded, self.crowded = self.crowded, set()
            for connection in crowded:
                connection.resume()

    def may_receive(self, size: int, listener: ServedListener) -> bool:
        """Whether there is room for a large request; then it is counted. A broker waits for no
        client that is slow to send."""
        limit = self.limits.receiving_max_bytes
        is_full = limit >= 0 and self.receiving_bytes and self.receiving_bytes + size > limit
        if is_full and not listener.is_for_brokers:
            return False
        self.receiving_bytes += size
        return True

    def received(self, size: int) -> None:
        """A large request is there, or its client is gone."""
        self.receiving_bytes -= size
        waiting, self.short_of_memory = self.short_of_memory, {}
        for connection in waiting:
            connection.resume()

    def begin_turn(self) -> None:
        """Requests are at hand: the first of a turn of the loop opens its budget."""
        if not self._in_turn:
            self._in_turn = True
            self.turn_end_ns = time.perf_counter_ns() + TURN_NS
            self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._in_turn = False
        self.turns += 1
        turn_ns = time.perf_counter_ns() - self.turn_end_ns + TURN_NS
        if turn_ns > self.longest_turn_ns:
            self.longest_turn_ns = turn_ns

    def go_on_soon(self, connection: Connection) -> None:
        """Continues a halted connection in a turn of the loop, behind those that wait already."""
        self._going_on.append(connection)
        self._serve_going_on_soon()

    def _serve_going_on_soon(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self.loop.call_soon(self._serve_going_on)

    def _serve_going_on(self) -> None:
        """Serves one connection after the other until this turn has handled enough requests, so
        that none waits for another that stops and continues over and over."""
        self._is_going_on = False
        # A turn has begun, whichever of its callbacks is the first.
        self._in_turn = False
        waiting, self._going_on = self._going_on, deque()
        while waiting and not (self._in_turn and self.turn_is_over):
            waiting.popleft().go_on()
        if waiting:
            # Before those that were served just now.
            self._going_on.extendleft(reversed(waiting))
            self._serve_going_on_soon()

    @property
    def turn_is_over(self) -> bool:
        """Whether this turn of the loop has taken enough requests."""
        return time.perf_counter_ns() >= self.turn_end_ns

    def flush_soon(self, connection: Connection) -> None:
        """Send what was answered outside of the connection's own run, all connections together in
        the next turn."""
        if not self._released:
            self.loop.call_soon(self._flush_released)
        self._released.append(connection)

    def _flush_released(self) -> None:
        released, self._released = self._released, []
        for connection in released:
            connection.flush_released()

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


def _listen_problem(listener: ServedListener, error: OSError) -> str:
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
