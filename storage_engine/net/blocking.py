"""A blocking connection for clients: frames out, frames in, each call with a deadline.

There are no threads, and a child process uses nothing of its parent: after a fork the connection
reports itself unusable, so that two processes never share one byte stream.
"""

import os
import select
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.net.deadline import Deadline
from storage_engine.net.frames import FrameCutter, Piece, ReceiveMemory, as_buffer
from storage_engine.net.limits import (
    EXACT_RECEIVE_BYTES,
    IOV_BUFFERS,
    LENGTH_BYTES,
    RESPONSE_MAX_BYTES,
    BufferPool,
)


class ConnectionEndedError(KafkaError):
    """The other side has closed the connection."""

    code = ErrorCode.NETWORK_EXCEPTION


class _Frames(FrameCutter):
    """The received frames, in memory that lives as long as their views."""

    __slots__ = ("_name", "came", "error")

    def __init__(self, name: str, pool: BufferPool | None) -> None:
        memory = ReceiveMemory(pool, EXACT_RECEIVE_BYTES + LENGTH_BYTES)
        self.came = came = deque[memoryview]()
        scratch = memory.scratch.obj

        def take(frame: memoryview) -> None:
            came.append(memoryview(bytearray(frame)) if frame.obj is scratch else frame)

        super().__init__(memory, RESPONSE_MAX_BYTES, take)
        self._name = name
        self.error: KafkaError | None = None
        """The error that ends the stream behind the received frames."""

    @property
    def has_begun(self) -> bool:
        return bool(self.came or self._rest or self._large is not None or self.error)

    def _run_ended(self) -> None:
        """Does nothing: the receiver takes the frames from `came`."""

    def _delivery_failed(self, error: Exception) -> None:
        raise error

    def _frame_too_large(self, size: int) -> None:
        self.error = network_error(self._name, _not_kafka(size))


class BlockingConnection:
    """A connection over one socket. Errors are KafkaError(NETWORK_EXCEPTION), or
    DeadlineExceededError; close the connection after either."""

    __slots__ = ("_frames", "_pid", "_socket", "name")

    def __init__(self, sock: socket.socket, name: str, pool: BufferPool | None) -> None:
        self._socket: socket.socket | None = sock
        self._pid = os.getpid()
        self._frames = _Frames(name, pool)
        self.name = name

    @classmethod
    def open(
        cls, host: str, port: int, deadline: Deadline, pool: BufferPool | None = None
    ) -> "BlockingConnection":
        """Connects. Raises KafkaError(NETWORK_EXCEPTION) when nobody answers before the
        deadline."""
        name = f"{host}:{port}"
        return cls(connected_socket(host, port, name, deadline), name, pool)

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
        frames = self._frames
        while not frames.came:
            if frames.error is not None:
                self.close()
                raise frames.error
            frames.buffer_updated(self._receive_into(frames.get_buffer(-1), deadline))
        return frames.came.popleft()

    def receive_nowait(self) -> memoryview | None:
        """The next frame if its beginning is there, else None; the rest of a frame begun is waited
        for."""
        if not self.readable():
            return None
        return self.receive(Deadline.after(_REST_OF_FRAME_MS))

    def readable(self) -> bool:
        """Whether there are bytes of a frame, or the end of the stream."""
        return self.has_buffered or _poll(self.fileno(), select.POLLIN, 0)

    @property
    def has_buffered(self) -> bool:
        """Whether bytes were received that the caller has not taken."""
        return self._frames.has_begun

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
"""The first byte of a TLS server's answer to a client that does not use TLS."""


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
