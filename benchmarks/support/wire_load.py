"""The ends of the measured connections: what sends, what drains, and the processes that they run
in.

An end does nothing but move bytes. Its requests lie ready, answers are counted by their bytes while
the clock runs and looked at after it has stopped.
"""

import mmap
import multiprocessing
import select
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from benchmarks.support.wire_frames import ProduceFrames, check_answers, fetch_frame
from storage_engine.tools.errors import CommandError

HOST = "127.0.0.1"
RECEIVE_BYTES = 256 * 1024
"""One read of a socket: what stays in the CPU's cache, for us as for the broker."""
CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 60.0
"""A peer that says nothing for so long is broken."""

Result = TypeVar("Result")

_GO = b"g"
_DONE = b"d"
_FRAME_LENGTH_BYTES = 4

_HEAD_BYTES = 256
"""More than what lies before the records of an answer, and their base offset."""
_JOIN_TIMEOUT_S = 5.0


class Worker:
    """A process of its own that runs one function at a time. Use as a context manager."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.port: int = self.result()
        """Where it listens, for functions whose first argument is the listening socket."""

    def begin(self, function: Callable[..., Any], *args: Any) -> None:
        """Start `function(listener, *args)` over there."""
        self._pipe.send((function, args))

    def result(self) -> Any:
        """What the function returned; CommandError with what it raised."""
        try:
            failure, value = self._pipe.recv()
        except EOFError:
            raise CommandError("a load process of the benchmark died") from None
        if failure is not None:
            raise CommandError(f"a load process of the benchmark failed: {failure}")
        return value

    def run(self, function: Callable[..., Result], *args: Any) -> Result:
        """`begin` and `result`."""
        self.begin(function, *args)
        result: Result = self.result()
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pipe.close()
        self._process.join(0 if error is not None else _JOIN_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection) -> None:
    """The life of a worker: functions until the other end of the pipe is closed."""
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(CONNECT_TIMEOUT_S)
        pipe.send((None, listener.getsockname()[1]))
        while True:
            try:
                function, args = pipe.recv()
            except (EOFError, KeyboardInterrupt):
                return
            outcome: tuple[str | None, Any]
            try:
                outcome = (None, function(listener, *args))
            except (OSError, CommandError) as error:
                outcome = (str(error) or type(error).__name__, None)
            pipe.send(outcome)


def _connect(port: int) -> socket.socket:
    sock = socket.create_connection((HOST, port), CONNECT_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def touch_memory(_listener: socket.socket, folder: Path, size: int) -> None:
    """Have the system use `size` bytes of memory as page cache, and free them."""
    piece = bytes(RECEIVE_BYTES)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(0, size, len(piece)):
            file.write(piece)


# --- the limit: bytes through the loopback ---


def drain(listener: socket.socket, size: int) -> None:
    """Receive `size` bytes on a connection, and say so."""
    sock, _ = listener.accept()
    with sock:
        sock.settimeout(SILENCE_TIMEOUT_S)
        _receive(sock, size)
        sock.sendall(_DONE)


def push(_listener: socket.socket, port: int, ring: bytes, piece: int, size: int) -> float:
    """Seconds to send `size` bytes, `ring` over and over in pieces, to a `drain`."""
    with _connect(port) as sock:
        sock.settimeout(SILENCE_TIMEOUT_S)
        started = time.perf_counter()
        _send(sock, ring, piece, size)
        sock.recv(1)
        return time.perf_counter() - started


def supply(listener: socket.socket, path: Path, piece: int, size: int) -> None:
    """Send the first `size` bytes of a file, mapped beforehand, which a `pull` receives."""
    with path.open("rb") as file:
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        mapped = mmap.mmap(file.fileno(), size, flags, mmap.PROT_READ)
    sock, _ = listener.accept()
    with mapped, sock, memoryview(mapped) as view:
        sock.settimeout(SILENCE_TIMEOUT_S)
        sock.recv(1)
        for position in range(0, size, piece):
            with view[position : position + piece] as part:
                sock.sendall(part)
        sock.recv(1)


def pull(_listener: socket.socket, port: int, size: int) -> float:
    """Seconds to receive `size` bytes from a `supply`."""
    with _connect(port) as sock:
        sock.settimeout(SILENCE_TIMEOUT_S)
        started = time.perf_counter()
        sock.sendall(_GO)
        _receive(sock, size)
        return time.perf_counter() - started


def _send(sock: socket.socket, ring: bytes, piece: int, size: int) -> None:
    view = memoryview(ring)
    position = 0
    while size:
        part = view[position : position + min(piece, size)]
        sock.sendall(part)
        size -= len(part)
        position = (position + len(part)) % len(view)


def _receive(sock: socket.socket, size: int) -> None:
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    while size:
        received = sock.recv_into(buffer, min(size, RECEIVE_BYTES))
        if not received:
            raise CommandError("the other end closed the connection")
        size -= received


# --- producers ---


class _ProducerConnection:
    """A producer's connection, with its progress in sending and the answers so far."""

    __slots__ = ("_answers", "_filled", "_frames", "_in_flight", "_ring", "_sent", "_total", "sock")

    def __init__(self, sock: socket.socket, frames: ProduceFrames, in_flight: int, requests: int):
        self.sock = sock
        self._frames = frames
        self._ring = memoryview(frames.ring)
        self._in_flight = in_flight
        self._total = requests * frames.frame_bytes
        self._sent = 0
        self._answers = memoryview(bytearray(requests * len(frames.answer)))
        self._filled = 0

    @property
    def done(self) -> bool:
        return self._filled == len(self._answers)

    def send(self, flags: int) -> bool:
        """Send what the answers so far allow; False when the socket takes no more now."""
        frame_bytes = self._frames.frame_bytes
        answered = self._filled // len(self._frames.answer)
        allowed = min(self._total, (answered + self._in_flight) * frame_bytes)
        ring = self._ring
        while self._sent < allowed:
            begin = self._sent % len(ring)
            part = ring[begin : begin + allowed - self._sent]
            try:
                taken = self.sock.send(part, flags)
            except BlockingIOError:
                return False
            self._sent += taken
        return True

    def receive(self, flags: int) -> None:
        """Take what answers there are."""
        received = self.sock.recv_into(self._answers[self._filled :], 0, flags)
        if not received:
            raise CommandError("the broker closed a producer's connection")
        self._filled += received

    def check(self) -> None:
        problem = check_answers(bytearray(self._answers), self._frames, first=0)
        if problem is not None:
            raise CommandError(f"a producer got a wrong answer: {problem}")


def produce(
    _listener: socket.socket,
    port: int,
    frames: ProduceFrames,
    connections: int,
    in_flight: int,
    requests: int,
) -> float:
    """Seconds to get `requests` requests answered on each connection, with so many in flight."""
    lanes = [
        _ProducerConnection(_connect(port), frames, in_flight, requests) for _ in range(connections)
    ]
    try:
        started = time.perf_counter()
        if connections == 1:
            _produce_alone(lanes[0])
        else:
            _produce_together(lanes)
        seconds = time.perf_counter() - started
    finally:
        for lane in lanes:
            lane.sock.close()
    for lane in lanes:
        lane.check()
    return seconds


def _produce_alone(lane: _ProducerConnection) -> None:
    lane.sock.settimeout(SILENCE_TIMEOUT_S)
    while not lane.done:
        lane.send(0)
        lane.receive(0)


def _produce_together(lanes: list[_ProducerConnection]) -> None:
    by_descriptor = {lane.sock.fileno(): lane for lane in lanes}
    blocked: set[int] = set()
    with select.epoll() as poller:
        for descriptor, lane in by_descriptor.items():
            lane.sock.setblocking(False)
            lane.send(0)
            # Writable too at first: whoever could not send all of it is told.
            poller.register(descriptor, select.EPOLLIN | select.EPOLLOUT)
            blocked.add(descriptor)
        left = len(lanes)
        while left:
            events = poller.poll(SILENCE_TIMEOUT_S)
            if not events:
                raise CommandError(f"no answer in {SILENCE_TIMEOUT_S:.0f} s")
            for descriptor, event in events:
                lane = by_descriptor[descriptor]
                if event & ~select.EPOLLOUT:
                    lane.receive(0)
                if lane.done:
                    poller.unregister(descriptor)
                    left -= 1
                    continue
                if lane.send(0) == (descriptor in blocked):
                    blocked ^= {descriptor}
                    wanted = select.EPOLLOUT if descriptor in blocked else 0
                    poller.modify(descriptor, select.EPOLLIN | wanted)


# --- consumers ---


class _Reader:
    """A consumer's connection: what it has asked for, and how much of the next answer is there."""

    __slots__ = (
        "_answer_bytes",
        "_asked",
        "_buffer",
        "_got",
        "_head",
        "_last",
        "_max_bytes",
        "_offset",
        "_step",
        "_topic",
        "sock",
    )

    def __init__(
        self, sock: socket.socket, topic: str, max_bytes: int, step: int, last: int, buffer: Any
    ) -> None:
        # Else a read could take the beginning of the next answer along.
        assert max_bytes >= len(buffer)
        self.sock = sock
        self._topic = topic
        self._max_bytes = max_bytes
        self._step = step
        self._last = last
        self._buffer = buffer
        self._asked = 0
        self._offset = 0
        self._got = 0
        self._answer_bytes = 0
        # All that lies before the records of the present answer, and their base offset.
        self._head = b""

    @property
    def done(self) -> bool:
        return self._offset == self._last

    def ask(self) -> None:
        """Ask for what follows, if there is more."""
        if self._asked < self._last:
            self.sock.sendall(fetch_frame(self._topic, self._max_bytes, self._asked))
            self._asked += self._step

    def receive(self) -> bool:
        """Take bytes of the answer; True when it is whole, with the offset moved on."""
        known = self._got >= _FRAME_LENGTH_BYTES
        left = self._answer_bytes - self._got if known else len(self._buffer)
        received = self.sock.recv_into(self._buffer, min(left, len(self._buffer)))
        if not received:
            raise CommandError("the broker closed a consumer's connection")
        if not self._got:
            self._head = b""
        if len(self._head) < _HEAD_BYTES:
            self._head += self._buffer[: min(received, _HEAD_BYTES - len(self._head))]
            self._answer_bytes = _FRAME_LENGTH_BYTES + int.from_bytes(self._head[:4], "big")
        self._got += received
        if self._got < max(_FRAME_LENGTH_BYTES, self._answer_bytes):
            return False
        before_records = self._answer_bytes - self._max_bytes
        base_offset = self._head[before_records : before_records + 8] if before_records > 0 else b""
        if len(base_offset) < 8 or int.from_bytes(base_offset, "big") != self._offset:
            raise CommandError(f"a consumer got a wrong answer for offset {self._offset}")
        self._offset += self._step
        self._got = 0
        return True


def consume(
    _listener: socket.socket,
    port: int,
    topic: str,
    consumers: int,
    max_bytes: int,
    step: int,
    answers: int,
    in_flight: int,
) -> float:
    """Seconds until each of the consumers has had `answers` answers of `max_bytes` and `step`
    offsets each, with so many requests in flight."""
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    readers = [
        _Reader(_connect(port), topic, max_bytes, step, step * answers, buffer)
        for _ in range(consumers)
    ]
    by_descriptor = {reader.sock.fileno(): reader for reader in readers}
    try:
        with select.epoll() as poller:
            for descriptor, reader in by_descriptor.items():
                reader.sock.settimeout(SILENCE_TIMEOUT_S)
                poller.register(descriptor, select.EPOLLIN)
            started = time.perf_counter()
            for reader in readers:
                for _ in range(in_flight):
                    reader.ask()
            left = consumers
            while left:
                for descriptor, _ in poller.poll(SILENCE_TIMEOUT_S):
                    reader = by_descriptor[descriptor]
                    if not reader.receive():
                        continue
                    if reader.done:
                        poller.unregister(descriptor)
                        left -= 1
                    else:
                        reader.ask()
            return time.perf_counter() - started
    finally:
        for reader in readers:
            reader.sock.close()
