r"""Sends requests to other brokers, with callbacks on the event loop.

    request -> waiting -> (connect, backoff) -> in flight -> reply
                   \-> TransportError on a failed connection, a timeout or `disconnect`

Each request is answered exactly once, never within the call of `request`; order holds within
(endpoint, channel); after any failure the connection is dropped with all its requests, since later
answers could no longer be matched. It implements protocol.transport.Transport.

What the kernels of other machines say of the ports of brokers: `core.ports.PeerPorts`.

Source: R-REP2, R-CTL3.
"""

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, cast

from storage_engine.core.errors import HeadraceError
from storage_engine.core.ports import Endpoint, PortAnswer, TransportError
from storage_engine.net.frames import FrameCutter, Piece, ReceiveMemory, joined
from storage_engine.net.limits import (
    CONNECT_TIMEOUT_MS,
    EXACT_RECEIVE_BYTES,
    RECONNECT_BACKOFF_MAX_MS,
    RECONNECT_BACKOFF_MS,
    RESPONSE_MAX_BYTES,
    TLS_SHUTDOWN_TIMEOUT_MS,
)
from storage_engine.net.peer_log_in import LogInEnds, MakeSaslClient, PeerLogIn
from storage_engine.protocol.apis.spec import AnyApi, ApiSpec, Req, Resp
from storage_engine.protocol.framing import (
    encode_request_frame,
    parse_response,
    read_correlation_id,
)

if TYPE_CHECKING:
    # Only a broker with TLS loads the library.
    import ssl


log = logging.getLogger("storage_engine.net")

LOG_IN_AGAIN_AFTER = 0.85
"""The part of its time after which a log-in is done again, as by Kafka's clients (KIP-368)."""

_CLIENT_ID = "headrace-broker"

OnReply = Callable[[Any], None]

AddressInfo = tuple[
    socket.AddressFamily,
    socket.SocketKind,
    int,
    str,
    tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
]
"""A result of `getaddrinfo`."""


class PeerTransport:
    """Connections to the other brokers of the cluster, opened when first needed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: Callable[[], "ssl.SSLContext"] | None = None,
        log_in: MakeSaslClient | None = None,
    ) -> None:
        """`tls`: what to encrypt the next connection with; None: no connection is. `log_in`: with
        what to log in by SASL over each connection; None: no log-in."""
        self.loop = loop
        self.tls = tls
        self.log_in = log_in
        self.memory = ReceiveMemory()
        self.on_lost: Callable[[Endpoint, Exception | None], None] = lambda endpoint, error: None
        """Called when a connection was ended that this side did not end; None: the other side
        closed it."""
        self._channels: dict[tuple[Endpoint, str], _Channel] = {}

    def request(
        self,
        endpoint: Endpoint,
        channel: str,
        spec: ApiSpec[Req, Resp],
        version: int,
        message: Req,
        *,
        timeout_ms: int,
        on_reply: Callable[[Resp | TransportError], None],
    ) -> None:
        key = (endpoint, channel)
        peer = self._channels.get(key)
        if peer is None:
            peer = self._channels[key] = _Channel(self, endpoint, channel)
        peer.request(spec, version, message, timeout_ms, on_reply)

    def disconnect(self, endpoint: Endpoint, channel: str) -> None:
        peer = self._channels.pop((endpoint, channel), None)
        if peer is not None:
            peer.drop("disconnected")

    def close(self) -> None:
        """Drop every connection."""
        for endpoint, channel in list(self._channels):
            self.disconnect(endpoint, channel)


class _Request:
    """A request under way; `frame` is None once it is sent."""

    __slots__ = ("correlation_id", "frame", "on_reply", "spec", "timer", "version")

    def __init__(self, correlation_id: int, spec: AnyApi, version: int, on_reply: OnReply) -> None:
        self.correlation_id = correlation_id
        self.spec = spec
        self.version = version
        self.on_reply = on_reply
        self.frame: list[Piece] = []
        self.timer: asyncio.TimerHandle


class _TlsArguments(TypedDict, total=False):
    """The TLS arguments of `create_connection`."""

    ssl: "ssl.SSLContext"
    server_hostname: str
    ssl_handshake_timeout: float
    ssl_shutdown_timeout: float


class _Channel:
    """One connection to one broker, and its successors."""

    def __init__(self, transport: PeerTransport, endpoint: Endpoint, channel: str) -> None:
        self._parent = transport
        self._loop = transport.loop
        self.endpoint = endpoint
        self.name = f"broker {endpoint.broker_id} at {endpoint.host}:{endpoint.port} ({channel})"
        # In the order of the requests; those in flight were sent, those waiting were not.
        self._in_flight: deque[_Request] = deque()
        self._waiting: deque[_Request] = deque()
        self._correlation_id = 0
        self._connection: _PeerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._retry_at_s = 0.0
        # While it is there, new requests wait.
        self._log_in: PeerLogIn | None = None
        self._log_in_timer: asyncio.TimerHandle | None = None

    def request(
        self,
        spec: ApiSpec[Req, Resp],
        version: int,
        message: Req,
        timeout_ms: int,
        on_reply: Callable[[Resp | TransportError], None],
    ) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request = _Request(self._correlation_id, spec, version, on_reply)
        request.frame = encode_request_frame(
            spec, version, self._correlation_id, _CLIENT_ID, message
        )
        request.timer = self._loop.call_later(
            timeout_ms / 1000, self._timed_out, request, timeout_ms
        )
        if self._connection is None or self._log_in is not None:
            self._waiting.append(request)
            self._connect_soon()
        else:
            self._send(self._connection, request)

    def _send(self, connection: "_PeerConnection", request: _Request) -> None:
        self._in_flight.append(request)
        connection.send(request.frame)
        request.frame = []

    # Connecting.

    def _connect_soon(self) -> None:
        if self._connecting or self._retry_timer or self._connection:
            return
        pause_s = self._retry_at_s - self._loop.time()
        if self._failures and pause_s > 0:
            self._retry_timer = self._loop.call_later(pause_s, self._connect)
        else:
            self._connect()

    def _connect(self) -> None:
        self._retry_timer = None
        if self._waiting:
            self._connecting = self._loop.create_task(self._open_connection())

    async def _open_connection(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                await self._loop.create_connection(
                    lambda: _PeerConnection(self, self._parent.memory),
                    self.endpoint.host,
                    self.endpoint.port,
                    **self._tls_arguments(),
                )
        except TimeoutError:
            self._connecting = None
            self._failed(f"no connection within {CONNECT_TIMEOUT_MS} ms")
        except OSError as error:
            self._connecting = None
            self._failed(_connect_problem(error))
        except ValueError:
            # Of a name whose parts are empty or too long to ask for, or that no certificate has.
            self._connecting = None
            self._failed("that is no host name")

    def _tls_arguments(self) -> "_TlsArguments":
        make = self._parent.tls
        if make is None:
            return {}
        return {
            "ssl": make(),
            "server_hostname": self.endpoint.host.rstrip("."),
            "ssl_handshake_timeout": CONNECT_TIMEOUT_MS / 1000,
            "ssl_shutdown_timeout": TLS_SHUTDOWN_TIMEOUT_MS / 1000,
        }

    def connected(self, connection: "_PeerConnection") -> None:
        """Send what has waited, after the log-in where there is one."""
        self._connecting = None
        self._connection = connection
        if self._parent.log_in is None:
            self._send_waiting(connection)
        else:
            self._begin_log_in(connection, self._parent.log_in)

    def _send_waiting(self, connection: "_PeerConnection") -> None:
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            self._send(connection, request)

    # The log-in.

    def _begin_log_in(self, connection: "_PeerConnection", make: MakeSaslClient) -> None:
        """Begin a log-in, or a later one behind the requests that are in flight."""

        def done(session_lifetime_ms: int) -> None:
            self._end_log_in()
            connection.answered = False
            if session_lifetime_ms:
                self._log_in_timer = self._loop.call_later(
                    session_lifetime_ms * LOG_IN_AGAIN_AFTER / 1000,
                    self._begin_log_in,
                    connection,
                    make,
                )
            self._send_waiting(connection)

        def failed(reason: str) -> None:
            log.warning("peer=%s %s", self.name, reason)
            self._close_connection()
            self._failed(reason)

        ends = LogInEnds(send=connection.send, on_done=done, on_failed=failed)
        self._log_in_timer = None
        self._log_in = PeerLogIn(self._loop, make, ends)
        self._log_in.begin()

    def _end_log_in(self) -> None:
        if self._log_in is not None:
            self._log_in.close()
            self._log_in = None
        if self._log_in_timer is not None:
            self._log_in_timer.cancel()
            self._log_in_timer = None

    def _close_connection(self) -> None:
        self._end_log_in()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def _failed(self, reason: str) -> None:
        """The connection could not be made, or broke before its first answer: double the pause
        before the next attempt."""
        backoff_ms = min(RECONNECT_BACKOFF_MAX_MS, RECONNECT_BACKOFF_MS << min(self._failures, 10))
        self._failures += 1
        self._retry_at_s = self._loop.time() + backoff_ms / 1000
        self._answer_all(reason)

    # Answers.

    def received(self, frame: memoryview) -> None:
        """Handle an answer: to the oldest request in flight, or to the log-in where none is."""
        if not self._in_flight and self._log_in is not None:
            self._log_in.received(frame)
            return
        if not self._in_flight:
            self.drop("it sent an answer to no request")
            return
        request = self._in_flight[0]
        try:
            if read_correlation_id(frame) != request.correlation_id:
                self.drop("it sent an answer to another request")
                return
            message = parse_response(request.spec, request.version, frame)
        except HeadraceError as error:
            self.drop(f"it sent an answer that can't be decoded: {error}")
            return
        self._in_flight.popleft()
        self._failures = 0
        request.timer.cancel()
        self._reply(request, message)

    def lost(self, connection: "_PeerConnection", error: Exception | None) -> None:
        """The connection is gone. Requests in flight may have been carried out, or not."""
        if self._connection is not connection:
            return
        self._connection = None
        reason = str(error) if error else "the connection was closed"
        was_in_log_in = self._log_in is not None
        self._end_log_in()
        if was_in_log_in or (self._in_flight and not connection.answered):
            self._failed(reason)
        else:
            self._answer_all(reason)
        self._parent.on_lost(self.endpoint, error)

    def _timed_out(self, request: _Request, timeout_ms: int) -> None:
        reason = f"no answer to {request.spec.name} within {timeout_ms} ms"
        if request in self._waiting:
            self._waiting.remove(request)
            self._reply(request, TransportError(reason=f"{self.name}: {reason}"))
        else:
            self.drop(reason)

    def drop(self, reason: str) -> None:
        """Close the connection and answer everything with TransportError."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._close_connection()
        self._answer_all(reason)

    def _answer_all(self, reason: str) -> None:
        requests = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        error = TransportError(reason=f"{self.name}: {reason}")
        for request in requests:
            request.timer.cancel()
        for request in requests:
            self._reply(request, error)

    def _reply(self, request: _Request, answer: Any) -> None:
        try:
            request.on_reply(answer)
        except Exception:
            log.exception("answer not processed peer=%s request=%s", self.name, request.spec.name)


def _connect_problem(error: OSError) -> str:
    """The reason in words. Errors of TLS have numbers of their own."""
    message = getattr(error, "verify_message", "")
    if message:
        return f"its certificate is not accepted: {message}"
    reason = getattr(error, "reason", None)
    if reason:
        return f"TLS failed: {reason}"
    return os.strerror(error.errno) if error.errno else str(error)


class _PeerConnection(FrameCutter, asyncio.BufferedProtocol):
    __slots__ = ("_channel", "_transport", "answered")

    head_first_bytes = 4 * EXACT_RECEIVE_BYTES
    """Less than of a server, since here whatever is in the scratch buffer is copied; where answers
    are smaller than this, the copy costs less than a second read."""

    def __init__(self, channel: _Channel, memory: ReceiveMemory) -> None:
        super().__init__(memory, RESPONSE_MAX_BYTES, self._received)
        self._channel = channel
        self._transport: asyncio.Transport
        self.answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._channel.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.lost(self, exc)

    def send(self, frame: list[Piece]) -> None:
        self._transport.write(joined(frame))

    def abort(self) -> None:
        self._halted = True
        self._transport.abort()

    def _received(self, frame: memoryview) -> None:
        self.answered = True
        if frame.obj is self._memory.scratch.obj:
            # The scratch buffer serves the next read; the caller may keep the answer.
            frame = memoryview(bytearray(frame))
        self._channel.received(frame)

    def _run_ended(self) -> None:
        """Does nothing: no answers are collected during a run."""

    def _delivery_failed(self, error: Exception) -> None:
        log.error("answer not processed peer=%s", self._channel.name, exc_info=error)
        self._channel.drop("its answer met an unexpected error")

    def _frame_too_large(self, size: int) -> None:
        self._channel.drop(f"it announces an answer of {size} bytes")


PROBE_TIMEOUT_S = 1.0
"""The timeout of a probe. A port that does not answer by then has not refused: packets are dropped,
or its queue of connections is full."""

_BY_THE_OTHER = frozenset({errno.ECONNRESET, errno.EPIPE})
"""Errors that the other broker causes; others (no route, no answer) are the network's."""


class TcpPeerPorts:
    """Learns of peers' ports from a transport's connections, and from connections as probes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: PeerTransport) -> None:
        self._loop = loop
        self._transport = transport
        self._tasks: set[asyncio.Task[None]] = set()

    def on_closed(self, listener: Callable[[Endpoint], None]) -> None:
        def lost(endpoint: Endpoint, error: Exception | None) -> None:
            if error is None or (isinstance(error, OSError) and error.errno in _BY_THE_OTHER):
                listener(endpoint)

        self._transport.on_lost = lost

    def probe(self, endpoint: Endpoint, on_done: Callable[[PortAnswer], None]) -> None:
        async def ask() -> None:
            on_done(await self._answer_of(endpoint))

        task = self._loop.create_task(ask())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _answer_of(self, endpoint: Endpoint) -> PortAnswer:
        """The port's answer; REFUSED only where every address of the host refuses."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                addresses = await self._loop.getaddrinfo(
                    endpoint.host, endpoint.port, type=socket.SOCK_STREAM
                )
                for address in addresses:
                    if await self._accepts(address):
                        return PortAnswer.ACCEPTED
        except (OSError, TimeoutError, ValueError):
            return PortAnswer.SILENT
        return PortAnswer.REFUSED if addresses else PortAnswer.SILENT

    async def _accepts(self, address: AddressInfo) -> bool:
        """Whether the address accepts a connection, False: refuses; OSError for other failures."""
        family, kind, protocol, _, where = address
        with socket.socket(family, kind, protocol) as probe:
            probe.setblocking(False)
            try:
                await self._loop.sock_connect(probe, where)
            except ConnectionRefusedError:
                return False
            return True
