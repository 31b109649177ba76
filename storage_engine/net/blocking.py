"""A blocking connection for clients: frames out, frames in, each call with a deadline.

There are no threads, and a child process uses nothing of its parent: after a fork the connection
reports itself unusable, so that two processes never share one byte stream.
"""

import os
import select
import socket
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.net.buffers import BufferPool
from storage_engine.net.deadline import Deadline
from storage_engine.net.limits import IOV_BUFFERS, LENGTH, LENGTH_BYTES, RESPONSE_MAX_BYTES
from storage_engine.net.pieces import Piece, as_buffer

_SCRATCH_BYTES = 64 * 1024
"""Answers below this are taken from the socket together; larger ones are received into memory of
their own."""


class ConnectionEndedError(KafkaError):
    """The other side has closed the connection."""

    code = ErrorCode.NETWORK_EXCEPTION


class BlockingConnection:
    """A connection over one socket. Errors are KafkaError(NETWORK_EXCEPTION), or
    DeadlineExceededError; close the connection after either."""

    __slots__ = ("_end", "_pid", "_pool", "_scratch", "_socket", "_start", "name")

    def __init__(self, sock: socket.socket, name: str, pool: BufferPool) -> None:
        self._socket: socket.socket | None = sock
        self._pid = os.getpid()
        self._pool = pool
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        # What was received and not taken yet: scratch[start:end].
        self._start = 0
        self._end = 0
        self.name = name

    @classmethod
    def open(
        cls, host: str, port: int, deadline: Deadline, pool: BufferPool | None = None
    ) -> "BlockingConnection":
        """Connects. Raises KafkaError(NETWORK_EXCEPTION) when nobody answers before the
        deadline."""
        name = f"{host}:{port}"
        return cls(connected_socket(host, port, name, deadline), name, pool or BufferPool())

    @property
    def usable(self) -> bool:
        """Open, and opened by this very process."""
        return self._socket is not None and self._pid == os.getpid()

    def fileno(self) -> int:
        return self._opened().fileno()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _opened(self) -> socket.socket:
        if self._socket is None:
            raise network_error(self.name, "the connection is closed")
        if self._pid != os.getpid():
            self.close()
            raise network_error(self.name, "the connection belongs to the parent process")
        return self._socket

    def send(self, pieces: Sequence[Piece], deadline: Deadline) -> None:
        """Send all of it."""
        sock = self._opened()
        views = [memoryview(as_buffer(piece)) for piece in pieces]
        while views:
            try:
                sent = sock.sendmsg(views[:IOV_BUFFERS])
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline, "could not send a request")
                continue
            except OSError as error:
                self.close()
                raise network_error(self.name, error.strerror or str(error)) from None
            views = _drop_sent(views, sent)

    def receive(self, deadline: Deadline) -> memoryview:
        """The next frame without its length, in memory that lives as long as the view."""
        while (frame := self._taken()) is None:
            size = self._next_size()
            if size is not None and LENGTH_BYTES + size > _SCRATCH_BYTES:
                return self._receive_large(size, deadline)
            self._fill(deadline)
        return frame

    def receive_nowait(self) -> memoryview | None:
        """The next frame if its beginning is there, else None; the rest of a frame begun is waited
        for."""
        frame = self._taken()
        if frame is None and self.readable():
            return self.receive(Deadline.after(_REST_OF_FRAME_MS))
        return frame

    def readable(self) -> bool:
        """Whether there are bytes of a frame, or the end of the stream."""
        return self.has_buffered or _poll(self.fileno(), select.POLLIN, 0)

    @property
    def has_buffered(self) -> bool:
        """Whether bytes were received that the caller has not taken."""
        return self._end > self._start

    def _taken(self) -> memoryview | None:
        size = self._next_size()
        if size is None or self._end - self._start < LENGTH_BYTES + size:
            return None
        start = self._start + LENGTH_BYTES
        frame = memoryview(bytearray(self._scratch[start : start + size]))
        self._start = start + size
        if self._start == self._end:
            self._start = self._end = 0
        return frame

    def _next_size(self) -> int | None:
        if self._end - self._start < LENGTH_BYTES:
            return None
        (size,) = LENGTH.unpack_from(self._scratch, self._start)
        if size > RESPONSE_MAX_BYTES:
            self.close()
            raise network_error(self.name, _not_kafka(size))
        return int(size)

    def _fill(self, deadline: Deadline) -> None:
        """Receive some more into the scratch buffer."""
        if self._start:
            rest = bytes(self._scratch[self._start : self._end])
            self._scratch[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        self._end += self._receive_into(self._scratch[self._end :], deadline)

    def _receive_large(self, size: int, deadline: Deadline) -> memoryview:
        frame = self._pool.take(size)
        head = self._scratch[self._start + LENGTH_BYTES : self._end]
        frame[: len(head)] = head
        self._start = self._end = 0
        filled = len(head)
        while filled < size:
            filled += self._receive_into(frame[filled:], deadline)
        return frame

    def _receive_into(self, target: memoryview, deadline: Deadline) -> int:
        sock = self._opened()
        while True:
            try:
                received = sock.recv_into(target)
            except BlockingIOError:
                self._wait(select.POLLIN, deadline, "no answer")
                continue
            except OSError as error:
                self.close()
                raise network_error(self.name, error.strerror or str(error)) from None
            if not received:
                self.close()
                raise ended(self.name)
            return received

    def _wait(self, event: int, deadline: Deadline, what: str) -> None:
        if not _poll(self.fileno(), event, deadline.left_ms) and deadline.passed:
            self.close()
            raise DeadlineExceededError(f"{self.name}: {what} within {deadline.timeout_ms} ms")


_REST_OF_FRAME_MS = 30_000
"""A broker that pauses in the middle of a frame for this long counts as dead."""


class Readable(Protocol):
    """A connection or a `Waker`, as something to wait for."""

    @property
    def has_buffered(self) -> bool: ...

    def fileno(self) -> int: ...


_Readable = TypeVar("_Readable", bound=Readable)


def wait_readable(connections: Iterable[_Readable], timeout_ms: int) -> list[_Readable]:
    """Waits up to `timeout_ms` for data, and returns the connections that have received some or
    were closed by the other side."""
    poller = select.poll()
    by_descriptor = {}
    ready = []
    for connection in connections:
        if connection.has_buffered:
            ready.append(connection)
        by_descriptor[connection.fileno()] = connection
        poller.register(connection.fileno(), select.POLLIN)
    for descriptor, _ in poller.poll(0 if ready else timeout_ms):
        if (connection := by_descriptor[descriptor]) not in ready:
            ready.append(connection)
    return ready


def _poll(descriptor: int, event: int, timeout_ms: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, event)
    return bool(poller.poll(timeout_ms))


_TLS_ALERT = 0x15
"""The first byte of what a TLS server says to who does not speak TLS."""


def _not_kafka(size: int) -> str:
    if size >> 24 == _TLS_ALERT and size >> 16 & 0xFF == 3:
        return "it speaks TLS; set security.protocol to SSL or SASL_SSL"
    return "it sends something that is not the Kafka protocol; is the port right?"


def _drop_sent(views: list[memoryview], sent: int) -> list[memoryview]:
    for index, view in enumerate(views):
        if sent < len(view):
            return [view[sent:], *views[index + 1 :]]
        sent -= len(view)
    return []


def connected_socket(host: str, port: int, name: str, deadline: Deadline) -> socket.socket:
    """A socket that does not block, to the first address of `host` that answers."""
    try:
        timeout_s = max(1, deadline.left_ms) / 1000
        sock = socket.create_connection((host, port), timeout=timeout_s)
    except TimeoutError:
        raise network_error(name, f"no connection within {deadline.timeout_ms} ms") from None
    except OSError as error:
        raise network_error(name, error.strerror or str(error)) from None
    except UnicodeError:
        raise network_error(name, "that is no host name") from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock


def ended(name: str) -> ConnectionEndedError:
    return ConnectionEndedError(f"{name}: the broker closed the connection")


def network_error(name: str, reason: str) -> KafkaError:
    """The error of a connection that is lost, or was never there."""
    return KafkaError(f"{name}: {reason}", ErrorCode.NETWORK_EXCEPTION)
