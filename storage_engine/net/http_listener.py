"""A small HTTP/1.1 server for one text that all clients at its address may read, such as a broker's
metrics, on the loop that serves all else.

    connection -> a request of at most 8 KiB -> its Host is ours -> the text, made in pieces
                                                                     between turns of the loop

Whatever a client does costs little: connections, bytes and times have limits, one text is made at a
time, and it serves all who ask within a second. `Host` must be an address or one of our names: a
page in a browser, whose name was made to lead here (DNS rebinding), has another. h11 reads and
writes the protocol.
"""

import asyncio
import ipaddress
import logging
import socket
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from functools import partial
from typing import cast

import h11

from storage_engine.core.errors import HeadraceError
from storage_engine.net.acceptor import Acceptor

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 16
"""The most connections; one more closes the longest idle one. Each scraper keeps one."""

REQUEST_MAX_BYTES = 8 << 10
"""The most bytes of a request's line and headers; Prometheus sends 300."""

REQUEST_MAX_MS = 5_000
"""The longest time from the first byte of a request to its last."""

IDLE_MAX_MS = 120_000
"""The longest time from an answer to the next request: Prometheus asks every 15 to 60 s."""

SEND_MAX_MS = 10_000
"""How long a client may take for an answer."""

KEPT_MS = 1_000
"""How long a text is also served to other clients that ask."""

PIECE_NS = 1_000_000
"""The work on a text after which the loop takes a turn."""

TEXT = "text/plain; charset=utf-8"

MakeText = Callable[[str], Iterator[str]]
"""Media type -> the pieces of a text of that type, each made in much less than a millisecond."""


class HttpListener:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        host: str,
        port: int,
        path: str,
        media_type_for: Callable[[str], str],
        make_text: MakeText,
        names: Collection[str],
    ) -> None:
        """`media_type_for` gets the `Accept` of a request, and has few results. `names`: the host
        names by which clients may call this server, beside addresses and localhost."""
        self.loop = loop
        self.host = host
        self.port = port
        """The port; while listening, the actual one."""
        self.path = path
        self.media_type_for = media_type_for
        self._make_text = make_text
        self._names = {"localhost", host.lower(), *(name.lower() for name in names)}
        self._bound: asyncio.Server | None = None
        self._acceptor: Acceptor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: dict[HttpConnection, None] = {}
        """The open connections, the most recently used last."""
        self._joining = 0
        """Accepted sockets that are not opened yet."""
        self._making = asyncio.Lock()
        self._made: dict[str, tuple[float, bytes]] = {}

    async def start(self) -> None:
        """Listen. HeadraceError when the address can't be had."""
        try:
            self._bound = await self.loop.create_server(
                partial(HttpConnection, self), self.host, self.port, start_serving=False
            )
        except OSError as error:
            raise HeadraceError(
                f"can't listen on {self.host}:{self.port}: {error.strerror or error}; stop the "
                "program that listens there, or choose another port with "
                "metrics.listener=HOST:PORT"
            ) from None
        self.port = self._bound.sockets[0].getsockname()[1]
        self._acceptor = Acceptor(self.loop, self._bound, self._accepted)

    def close(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        if self._bound is not None:
            self._bound.close()
        for task in list(self._tasks):
            task.cancel()
        for connection in list(self._connections):
            connection.abort()

    def run(self, work: Coroutine[object, object, None]) -> None:
        """Runs it until it is done, or the listener is closed."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Connections.

    def _accepted(self, sock: socket.socket) -> None:
        is_full = len(self._connections) + self._joining >= CONNECTIONS_MAX
        if is_full and not self._make_room():
            sock.close()
            return
        self._joining += 1
        self.run(self._join(sock))

    def _make_room(self) -> bool:
        """Ends the connection that was idle for longest; False where all of them are being
        answered."""
        for connection in self._connections:
            if not connection.is_answering:
                connection.abort()
                # Not only when the loop reports its end: others may come in this turn.
                self.lost(connection)
                return True
        return False

    async def _join(self, sock: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(partial(HttpConnection, self), sock)
        except OSError:
            self._joining -= 1
            sock.close()

    def opened(self, connection: "HttpConnection") -> None:
        self._joining -= 1
        self._connections[connection] = None

    def used(self, connection: "HttpConnection") -> None:
        if self._connections.pop(connection, connection) is None:
            self._connections[connection] = None

    def lost(self, connection: "HttpConnection") -> None:
        self._connections.pop(connection, None)

    # Answers.

    def is_called(self, host: str) -> bool:
        """Whether a `Host` names this server."""
        name = host.strip().lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    async def text(self, media_type: str) -> bytes:
        """The whole text, at most a second old: each type is made once in that time."""
        async with self._making:
            made_s, text = self._made.get(media_type, (-1.0, b""))
            if made_s >= 0 and (self.loop.time() - made_s) * 1000 < KEPT_MS:
                return text
            begun_s = self.loop.time()
            pieces = []
            end_ns = time.perf_counter_ns() + PIECE_NS
            for piece in self._make_text(media_type):
                if piece:
                    pieces.append(piece.encode())
                if time.perf_counter_ns() >= end_ns:
                    await asyncio.sleep(0)
                    end_ns = time.perf_counter_ns() + PIECE_NS
            text = b"".join(pieces)
            self._made = {
                other: each
                for other, each in self._made.items()
                if (begun_s - each[0]) * 1000 < KEPT_MS
            }
            self._made[media_type] = begun_s, text
            return text


class HttpConnection(asyncio.Protocol):
    """One client: a request, its answer, the next request."""

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_MAX_BYTES)
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._is_head = False
        self.is_answering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._listener.opened(self)
        self._end_in(REQUEST_MAX_MS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._listener.lost(self)

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        is_first = self._http.their_state is h11.IDLE and not self._http.trailing_data[0]
        if is_first and not self.is_answering:
            # The time of a request does not begin anew with each byte.
            self._end_in(REQUEST_MAX_MS)
        self._http.receive_data(data)
        self._next_request()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_paused = True
        self._end_in(SEND_MAX_MS)

    def resume_writing(self) -> None:
        self._is_paused = False
        self._answered()

    def _end_in(self, delay_ms: int) -> None:
        self._stop_timer()
        self._timer = self._listener.loop.call_later(delay_ms / 1000, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next_request(self) -> None:
        """Takes up a request if there is a whole one; more are not received meanwhile."""
        if self.is_answering or self._transport.is_closing():
            return
        try:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._transport.pause_reading()
                self._take(event)
            elif event is h11.NEED_DATA:
                self._transport.resume_reading()
            else:
                self._transport.close()
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, "this is no HTTP/1.1 request")

    def _take(self, request: h11.Request) -> None:
        headers = {name: value.decode("latin-1") for name, value in request.headers}
        self._is_head = request.method == b"HEAD"
        if not isinstance(self._http.next_event(), h11.EndOfMessage):
            self._refuse(413, "a request has no body here")
        elif not self._listener.is_called(headers.get(b"host", "")):
            self._refuse(403, "this server has another name: see metrics.allowed.hosts")
        elif request.method not in (b"GET", b"HEAD"):
            self._refuse(405, "only GET and HEAD are answered")
        elif request.target.partition(b"?")[0].decode("latin-1") != self._listener.path:
            self._answer(404, TEXT, f"it is at {self._listener.path}\n".encode())
        else:
            self.is_answering = True
            self._stop_timer()
            accept = headers.get(b"accept", "")
            self._listener.run(self._serve(accept))

    async def _serve(self, accept: str) -> None:
        try:
            media_type = self._listener.media_type_for(accept)
            text = await self._listener.text(media_type)
        except Exception:
            log.exception("response to an HTTP client not made")
            self._refuse(500, "the text can't be made; the log says why")
            return
        if not self._transport.is_closing():
            self._answer(200, media_type, text)

    def _refuse(self, status: int, why: str) -> None:
        """Answers, if that is possible, and ends the connection."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._answer(status, TEXT, f"{why}\n".encode(), closes=True)
        self._transport.close()

    def _answer(self, status: int, media_type: str, text: bytes, *, closes: bool = False) -> None:
        self.is_answering = True
        headers = [
            ("Content-Type", media_type),
            ("Content-Length", str(len(text))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *([("Connection", "close")] if closes else []),
        ]
        head = self._http.send(h11.Response(status_code=status, headers=headers))
        body = self._http.send(h11.Data(data=b"" if self._is_head else text))
        end = self._http.send(h11.EndOfMessage())
        self._end_in(SEND_MAX_MS)
        self._transport.write(b"".join(part for part in (head, body, end) if part))
        if not self._is_paused:
            self._answered()

    def _answered(self) -> None:
        if not self.is_answering or self._transport.is_closing():
            return
        self.is_answering = False
        if self._http.our_state is h11.MUST_CLOSE or self._http.our_state is h11.ERROR:
            self._transport.close()
            return
        self._listener.used(self)
        self._end_in(IDLE_MAX_MS)
        self._http.start_next_cycle()
        # In a turn of its own: a client may have sent thousands at once.
        self._listener.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Takes up what came behind the last request."""
        if self._http.trailing_data[0] and not self._transport.is_closing():
            self._end_in(REQUEST_MAX_MS)
        self._next_request()
