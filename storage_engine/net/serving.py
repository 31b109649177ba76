"""The listeners of a server, and the state that their connections share: limits, memory for large
requests and the turns of the event loop. Source: R-NET1, R-NET3.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from storage_engine.core.security.security_protocol import SecurityProtocol
from storage_engine.net.frames import ReceiveMemory
from storage_engine.net.limits import TURN_NS, ServerLimits

if TYPE_CHECKING:
    from storage_engine.net.tls.contexts import ListenerTls

ConnectionT = TypeVar("ConnectionT")

FrameHandler = Callable[[ConnectionT, memoryview], None]
"""Called with each frame without its length; the view is valid during the call. To answer, it calls
`connection.begin()` and then, at any time, `respond` on the exchange. An exception closes the
connection."""


class AcceptRate(Protocol):
    """Bounds how often connections are accepted."""

    def wait_ms(self) -> int:
        """How long the next connection has to wait; 0: not at all."""
        ...

    def count(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedListener(Generic[ConnectionT]):
    """The address to listen on, and the handler of its connections."""

    handle: FrameHandler[ConnectionT]
    host: str
    """The host or address; empty: all addresses of the machine."""
    port: int = 0
    """The port; 0: any free one."""
    name: str = SecurityProtocol.PLAINTEXT.name
    on_opened: Callable[[ConnectionT], None] | None = None
    """Gets each connection that is admitted, before its first frame."""
    tls: "ListenerTls | None" = None
    """None: nothing is encrypted."""
    max_connections: int | None = None
    """`listener.name.<name>.max.connections`, beside that of the whole broker."""
    rate: AcceptRate | None = None
    """None: connections are accepted as they come."""
    is_for_brokers: bool = False
    """Whether brokers talk to each other by it, and clients by others: it is served also when
    clients have taken all places."""


class Served(Protocol):
    """A connection, as far as `Serving` uses it."""

    def resume(self) -> None:
        """Read again, after a limit has stopped it."""
        ...

    def go_on(self) -> None:
        """Take up the requests at which a turn of the loop has ended."""
        ...

    def flush_released(self) -> None:
        """Send the answers that were made outside of its own run of requests."""
        ...


ServedT = TypeVar("ServedT", bound=Served)


class Serving(Generic[ServedT]):
    """The state that connections share; a server adds listeners and the life of connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: ServerLimits) -> None:
        self.loop = loop
        self.limits = limits
        self.memory = ReceiveMemory()
        # Unanswered requests of all connections.
        self.pending = 0
        # Connections that are not read because of `queued.max.requests`.
        self.crowded: set[ServedT] = set()
        # Bytes of large requests that are being received, and connections that wait for room.
        self.receiving_bytes = 0
        self.short_of_memory: dict[ServedT, None] = {}
        self._released: list[ServedT] = []
        self.turns = 0
        """Turns of the loop that took up requests, since the start."""
        self.longest_turn_ns = 0
        """The longest turn since the last read; a reader sets it to 0."""
        # When this turn of the loop has taken up enough; set by the first request of each.
        self.turn_end_ns = 0
        self._in_turn = False
        # Halted connections that may go on, in the order in which they have stopped.
        self._going_on: deque[ServedT] = deque()
        self._is_going_on = False

    def opened(self, connection: ServedT) -> None:
        """Admit a connection, or close it where there are too many."""
        raise NotImplementedError

    def lost(self, connection: ServedT) -> None:
        raise NotImplementedError

    def count(self, more: int) -> None:
        """Add `more`, which may be negative, to the number of unanswered requests."""
        self.pending += more
        if more < 0 and self.crowded and self.pending < self.limits.queued_max_requests:
            crowded, self.crowded = self.crowded, set()
            for connection in crowded:
                connection.resume()

    def may_receive(self, size: int, listener: ServedListener[ServedT]) -> bool:
        """Whether there is room for a large request; then it is counted. A broker waits for no
        client that is slow to send."""
        limit = self.limits.receiving_max_bytes
        is_full = limit >= 0 and self.receiving_bytes and self.receiving_bytes + size > limit
        if is_full and not listener.is_for_brokers:
            return False
        self.receiving_bytes += size
        return True

    def received(self, size: int) -> None:
        """Release the room of a large request, which has arrived or whose client is gone; and let
        the connections that wait for room go on."""
        self.receiving_bytes -= size
        waiting, self.short_of_memory = self.short_of_memory, {}
        for connection in waiting:
            connection.resume()

    def begin_turn(self) -> bool:
        """Open the budget of this turn, for each run of requests; return whether it is used up."""
        if self._in_turn:
            return self.turn_is_over
        self._in_turn = True
        self.turn_end_ns = time.perf_counter_ns() + TURN_NS
        self.loop.call_soon(self._end_turn)
        return False

    def _end_turn(self) -> None:
        self._in_turn = False
        self.turns += 1
        turn_ns = time.perf_counter_ns() - self.turn_end_ns + TURN_NS
        if turn_ns > self.longest_turn_ns:
            self.longest_turn_ns = turn_ns

    def go_on_soon(self, connection: ServedT) -> None:
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
            # Before the connections that were served just now.
            self._going_on.extendleft(reversed(waiting))
            self._serve_going_on_soon()

    @property
    def turn_is_over(self) -> bool:
        """Whether this turn of the loop has taken enough requests."""
        return time.perf_counter_ns() >= self.turn_end_ns

    def flush_soon(self, connection: ServedT) -> None:
        """Send what was answered outside of the connection's own run, all connections together in
        the next turn."""
        if not self._released:
            self.loop.call_soon(self._flush_released)
        self._released.append(connection)

    def _flush_released(self) -> None:
        released, self._released = self._released, []
        for connection in released:
            connection.flush_released()
