"""One client's connection at the server: its life, and what of its requests is read when.

    read -> frames -> handler -> Exchange ... see `Responses`

    life      event                                     becomes
    OPEN      `drain`, `shut`, `abort`                  CLOSING: takes none, sends what it owes
    any       connection_lost                           CLOSED

    reading   event                                     becomes
    READS     a hold, writing pauses, a run is halted   STOPPED
    STOPPED   there is room again                       QUEUED: goes on in its turn
    QUEUED    its turn: what was left is delivered      READS; STOPPED or QUEUED if halted again
    QUEUED    its turn, while held or writing pauses    STOPPED

A connection that has too much unanswered, or does not take its answers, is not read; that costs no
other connection anything. Source: R-NET1, R-NET3.
"""

import asyncio
import enum
import itertools
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from storage_engine.core.errors import HeadraceError
from storage_engine.core.security.principal import ANONYMOUS
from storage_engine.net.client_log import ClientLog
from storage_engine.net.frames import (
    EncryptedWriter,
    Exchange,
    FrameCutter,
    Responses,
    ResponseWriter,
)

if TYPE_CHECKING:
    import ssl

    from storage_engine.net.serving import ServedListener, Serving

log = ClientLog("storage_engine.net")

REASON_TOLD = 40
"""The number of leading characters by which reasons are distinguished."""


class _Life(enum.Enum):
    OPEN = enum.auto()
    CLOSING = enum.auto()
    CLOSED = enum.auto()


class _Reading(enum.Enum):
    READS = enum.auto()
    STOPPED = enum.auto()
    QUEUED = enum.auto()


_OPEN, _READS = _Life.OPEN, _Reading.READS


_numbers = itertools.count()


class Connection(FrameCutter, asyncio.BufferedProtocol):
    """A client. The handler gets it with every frame, and calls `begin` for each frame that is to
    be answered."""

    def __init__(
        self, server: "Serving[Connection]", listener: "ServedListener[Connection]"
    ) -> None:
        super().__init__(server.memory, server.limits.request_max_bytes, _ignore)
        self._server = server
        self.listener = listener
        """The listener that accepted the connection."""
        self._transport: asyncio.Transport
        self._responses = Responses(self)
        # How many unanswered exchanges end a run; set at its start.
        self._budget = server.limits.pending_per_connection
        # How many unanswered exchanges of this connection are in the server's total.
        self._counted = 0
        # Size of the large frame that is being received; 0: none.
        self._receiving = 0
        self._short_of_memory = False
        # How many requests are worked on that let no later one be taken up.
        self._holds = 0
        # A large request that came when the turn was over.
        self._late: memoryview | None = None
        self._life = _OPEN
        self._reading = _READS
        self.active = True
        self.number = next(_numbers)
        """The connection's number, in the order of opening."""
        self.name = "?"
        self.peer_host = "?"
        self.principal = ANONYMOUS
        """The authenticated principal; ANONYMOUS before."""
        self.on_lost: Callable[[], None] | None = None
        """Called once when the connection is gone."""
        self.fd = -1
        self.deliver_to_listener()

    # What the handler uses.

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._life is _Life.CLOSED

    @property
    def listener_name(self) -> str:
        return self.listener.name

    @property
    def tls(self) -> "ssl.SSLObject | None":
        """The TLS of the connection; None when it is not encrypted."""
        found: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return found

    @property
    def is_open(self) -> bool:
        """Whether the connection has not begun to close."""
        return self._life is _OPEN

    @property
    def frame_max_bytes(self) -> int:
        """`socket.request.max.bytes`."""
        return self._frame_max_bytes

    @property
    def unanswered(self) -> int:
        """The number of requests without a response, or whose response waits for an earlier one."""
        return len(self._responses.exchanges)

    def begin(self) -> Exchange:
        """Creates the exchange of the present frame, at its place in the order of responses."""
        responses = self._responses
        exchange = Exchange(responses)
        exchanges = responses.exchanges
        exchanges.append(exchange)
        if len(exchanges) > self._budget or self._server.turn_is_over:
            self._halted = True
        return exchange

    def divert(self, deliver: Callable[[memoryview], None], frame_max_bytes: int) -> None:
        """Pass the frames from the next one on to `deliver`, until `deliver_to_listener`."""
        if self._life is not _Life.CLOSED:
            self._deliver = deliver
            self._frame_max_bytes = frame_max_bytes
            # A run that has begun would go on with the former receiver of frames.
            self._halted = self._halted or self._responses.in_run

    def deliver_to_listener(self) -> None:
        """Pass the frames from the next one on to the listener's handlers."""
        self.divert(partial(self.listener.handle, self), self._server.limits.request_max_bytes)

    def hold(self) -> None:
        """Take no later request until `release` was called as often as `hold` was."""
        self._holds += 1
        self._stop_reading()

    def release(self) -> None:
        """End a `hold`: the work that later requests waited for is done."""
        self._holds -= 1
        if not self._holds:
            if self._large is None and self._late is None:
                self._received()
            self._steer_reading()

    def request_failed(self, error: Exception) -> None:
        """Handle the error of a request that is worked on in several turns of the loop."""
        self._delivery_failed(error)

    def close(self, reason: str) -> None:
        """Say why in the log and close, after what has been answered is sent."""
        if self._life is not _OPEN:
            return
        self._log_end(reason)
        self.shut()

    def _log_end(self, reason: str | Exception) -> None:
        # By the reason, too: one client's is not hidden by another one's at the same address.
        source = f"{self.peer_host} {str(reason)[:REASON_TOLD]}"
        log.warning(source, "connection closed connection=%s reason=%s", self.name, reason)

    # The life of the connection, called by the event loop and by the server.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer_host = str(peer[0])
            self.name = f"{self.peer_host}:{peer[1]}"
        sock: socket.socket = transport.get_extra_info("socket")
        self.fd = sock.fileno()
        writer = ResponseWriter if self.listener.tls is None else EncryptedWriter
        self._responses.writer = writer(self._transport, self.fd)
        self._set_socket_buffers(sock)
        self._server.opened(self)

    def _set_socket_buffers(self, sock: socket.socket) -> None:
        limits = self._server.limits
        if limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        if limits.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._life = _Life.CLOSED
        self._halted = True
        self._responses.close()
        self._late = None
        self._count()
        if not self._holds:
            self._received()
        self._deliver = _ignore
        self._server.lost(self)
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    def eof_received(self) -> bool:
        """The client has closed its side. A server can't tell that from a client that is gone, so
        answers to what it has asked are of no use."""
        self.shut()
        # With TLS the other direction is closed in any case.
        return not self.idle and self.listener.tls is None

    def drain(self) -> None:
        """Takes no more requests, and closes the connection when all requests are answered."""
        self._stop_reading()
        self._begin_to_close()
        self._close_when_idle()

    def shut(self) -> None:
        """Close after sending what is answered; what is not answered yet never will be."""
        self._begin_to_close()
        self._halted = True
        self._responses.exchanges.clear()
        self._count()
        self._flush()
        self._close_when_idle()

    def abort(self) -> None:
        """Close at once."""
        self._begin_to_close()
        self._halted = True
        self._transport.abort()

    def _begin_to_close(self) -> None:
        if self._life is _OPEN:
            self._life = _Life.CLOSING

    def _close_when_idle(self) -> None:
        if self.idle:
            self._transport.close()

    @property
    def idle(self) -> bool:
        """Whether all requests are answered."""
        return self._responses.none_owed

    def on_silence(self) -> None:
        """Close an idle connection, after `connections.max.idle.ms` without a request."""
        if self._life is not _OPEN or self._responses.writer.pieces:
            self.abort()
        elif self.idle:
            log.info(self.peer_host, "idle connection closed connection=%s", self.name)
            self.shut()

    # Requests in.

    def buffer_updated(self, nbytes: int) -> None:
        self.active = True
        if self._life is not _OPEN:
            return
        is_over = self._start_run()
        if is_over and self._large is None:
            self._halted = True
        FrameCutter.buffer_updated(self, nbytes)
        self._responses.in_run = False

    def _start_run(self) -> bool:
        """Return whether this turn of the loop has taken enough requests already."""
        self._responses.in_run = True
        server = self._server
        left = server.limits.queued_max_requests - server.pending + self._counted
        self._budget = min(server.limits.pending_per_connection, max(1, left)) - 1
        return server.begin_turn()

    def _may_receive(self, size: int) -> bool:
        self._short_of_memory = not self._server.may_receive(size, self.listener)
        if self._short_of_memory:
            self._halted = True
        else:
            self._receiving = size
        return not self._short_of_memory

    def _received(self) -> None:
        size, self._receiving = self._receiving, 0
        if size:
            self._server.received(size)

    def _deliver_large(self, frame: memoryview) -> None:
        if self._server.turn_is_over:
            self._halted = True
            self._late = frame
            self._run_ended()
            return
        super()._deliver_large(frame)
        if not self._holds:
            self._received()

    def _run_ended(self) -> None:
        if self._responses.writer.pieces:
            self._flush()
        if len(self._responses.exchanges) != self._counted:
            self._count()
        if self._halted:
            self._steer_reading()

    def _count(self) -> None:
        more = len(self._responses.exchanges) - self._counted
        if more:
            self._counted += more
            self._server.count(more)

    def _steer_reading(self) -> None:
        """Continues a halted connection when there is room; otherwise this is called again
        later."""
        if self._life is not _OPEN:
            return
        self._stop_reading()
        if self._holds:
            return
        server = self._server
        pending = len(self._responses.exchanges)
        if self._short_of_memory:
            self._short_of_memory = False
            server.short_of_memory[self] = None
            return
        if self._responses.are_behind or pending > server.limits.pending_per_connection // 2:
            return
        if pending and server.pending >= server.limits.queued_max_requests:
            server.crowded.add(self)
        elif self._reading is not _Reading.QUEUED:
            self._reading = _Reading.QUEUED
            server.go_on_soon(self)

    def _stop_reading(self) -> None:
        self._halted = True
        if self._reading is _READS:
            self._reading = _Reading.STOPPED
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Deliver what a halted run has left; when that is done, read again."""
        self._reading = _Reading.STOPPED
        if self._life is not _OPEN or self._responses.are_behind or self._holds:
            return
        self._halted = False
        late, self._late = self._late, None
        if late is not None or self._rest:
            is_over = self._start_run()
            if late is not None:
                self._deliver_large(late)
            elif is_over:
                self._halted = True
                self._run_ended()
            else:
                self._deliver_rest()
            self._responses.in_run = False
        self._resume_reading()

    def _resume_reading(self) -> None:
        if not self._halted and self._life is _OPEN:
            self._reading = _READS
            self._transport.resume_reading()

    def resume(self) -> None:
        """Read again: the server has room."""
        self._steer_reading()

    def _delivery_failed(self, error: Exception) -> None:
        if isinstance(error, HeadraceError):
            self.close(str(error))
        else:
            log.error(self.peer_host, "request failed connection=%s", self.name, exc_info=error)
            self.close("its request met an unexpected error")

    def _frame_too_large(self, size: int) -> None:
        if size >= 1 << 31:
            size -= 1 << 32
        is_usual = self._frame_max_bytes == self._server.limits.request_max_bytes
        limit = "socket.request.max.bytes" if is_usual else "the limit before the log-in"
        self.close(f"a request announces {size} bytes, {limit}={self._frame_max_bytes}")

    # Responses out.

    def halt_run(self) -> None:
        """Takes up no further request of this run: enough is answered that is not sent."""
        self._halted = True

    def flush_soon(self) -> None:
        self._server.flush_soon(self)

    def flush_released(self) -> None:
        """Send what was answered outside of a run: at once when that was all, so that a follower
        works while others are answered; else once per turn of the event loop."""
        self._responses.is_flush_due = False
        if self._life is _Life.CLOSED:
            return
        self._flush()
        self._count()
        if self._life is not _OPEN:
            self._close_when_idle()
        elif self._halted:
            self._steer_reading()

    def pause_writing(self) -> None:
        self._responses.writer.is_paused = True
        if self._life is _OPEN:
            self._stop_reading()

    def resume_writing(self) -> None:
        self._responses.writer.is_paused = False
        self._flush()
        if self._life is not _OPEN:
            self._close_when_idle()
        elif not self._responses.writer.is_paused:
            self._steer_reading()

    def _flush(self) -> None:
        writer = self._responses.writer
        try:
            writer.flush()
        except HeadraceError as error:
            # A slice of a log that was truncated meanwhile; its size may be announced already.
            self._log_end(error)
            self._give_up_sending()
            return
        except Exception as error:
            log.error(self.peer_host, "answer not sent connection=%s", self.name, exc_info=error)
            self._give_up_sending()
            return
        if writer.pieces and writer.has_more:
            # A long answer goes on in the next turn, and no further request is read before.
            self._stop_reading()
            if not self._responses.is_flush_due:
                self._responses.flush_in_next_turn()

    def _give_up_sending(self) -> None:
        self._responses.writer.pieces.clear()
        self.abort()


def _ignore(frame: memoryview) -> None:
    """Drop a frame of a closed connection: nobody would get the answer."""
