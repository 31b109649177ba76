"""The responses of one connection: held back until all earlier requests are answered, then handed
to the writer.

    respond, in any order -> released in request order -> one send per run

What is answered within a run of requests goes out with it; what is answered later goes at once
when it is all that is owed, else once per turn of the event loop. Source: R-NET1.
"""

from collections import deque
from typing import Protocol

from storage_engine.net.limits import UNSENT_RESPONSE_BUFFERS
from storage_engine.net.pieces import ResponseBuffers, ResponseWriter

_NO_RESPONSE: ResponseBuffers = ()


class Owner(Protocol):
    """The connection of the responses."""

    def halt_run(self) -> None: ...

    def flush_released(self) -> None: ...

    def flush_soon(self) -> None:
        """Has `flush_released` called in the next turn of the event loop."""
        ...


class Exchange:
    """A request, and its response once there is one. Exactly one of `respond` and `skip` is called,
    once."""

    __slots__ = ("_responses", "buffers")

    def __init__(self, responses: "Responses") -> None:
        self._responses = responses
        self.buffers: ResponseBuffers | None = None

    @property
    def closed(self) -> bool:
        """The client is gone: a response would go nowhere."""
        return self._responses.closed

    def respond(self, buffers: ResponseBuffers) -> None:
        """Send these when all earlier requests of the connection are answered; now, later, in any
        order."""
        assert self.buffers is None, "a request was answered twice"
        self.buffers = buffers
        self._responses.answered(self)

    def skip(self) -> None:
        """Answer nothing, as a produce request with acks=0 wants."""
        self.respond(_NO_RESPONSE)


class Responses:
    """What a connection owes, in the order of its requests, and what it has not sent yet."""

    __slots__ = (
        "_connection",
        "exchanges",
        "in_run",
        "is_flush_due",
        "writer",
    )

    def __init__(self, connection: Owner) -> None:
        self._connection: Owner | None = connection
        """None when the client is gone, so that nothing keeps the connection."""
        self.exchanges: deque[Exchange] = deque()
        """The requests that wait for their response, or for that of one before them."""
        self.writer: ResponseWriter
        """Set once the connection has a transport."""
        self.in_run = False
        """While a run of requests is delivered: what is answered now goes out with the run."""
        self.is_flush_due = False
        """True while `flush_soon` was asked for and has not come."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._connection is None

    @property
    def none_owed(self) -> bool:
        """Whether all requests are answered."""
        return not self.exchanges and not self.writer.pieces

    @property
    def are_behind(self) -> bool:
        """Whether what is answered must be sent before more is read."""
        return self.writer.is_paused or self.writer.has_more

    def close(self) -> None:
        """The client is gone: nothing is owed."""
        self._connection = None
        self.exchanges.clear()
        self.writer.pieces.clear()

    def answered(self, exchange: Exchange) -> None:
        """Release what can go: answered exchanges at the head of the order."""
        exchanges, connection = self.exchanges, self._connection
        if connection is None or not exchanges or exchanges[0] is not exchange:
            return
        unsent = self.writer.pieces
        while exchanges:
            buffers = exchanges[0].buffers
            if buffers is None:
                break
            exchanges.popleft()
            unsent += buffers
        if self.in_run:
            if len(unsent) > UNSENT_RESPONSE_BUFFERS:
                connection.halt_run()
        elif not exchanges and not self.is_flush_due:
            connection.flush_released()
        elif not self.is_flush_due:
            # More may be answered in this turn.
            self.flush_in_next_turn()

    def flush_in_next_turn(self) -> None:
        connection = self._connection
        if connection is not None:
            self.is_flush_due = True
            connection.flush_soon()
