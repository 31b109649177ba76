"""The ends of the measured connections, and the processes that they run in.

An end does nothing but move bytes. Its requests lie ready, and the answers are checked after the
clock has stopped. Clients are blocking and take turns, so that the same lines move the same bytes
with TLS and without. Log-ins are by SASL/PLAIN, which every broker in the comparison has.
"""

import itertools
import mmap
import multiprocessing
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, TypeVarTuple

from benchmarks.support.wire_frames import CLIENT_ID, ProduceFrames, check_answers, fetch_frame
from storage_engine.net.frames import joined
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.framing import encode_request_frame
from storage_engine.protocol.messages import sasl_authenticate, sasl_handshake
from storage_engine.tools.errors import CommandError

HOST = "127.0.0.1"
USER = "app"
MECHANISM = "PLAIN"
RECEIVE_BYTES = 256 * 1024
"""One read of a socket: it stays in the CPU's cache, here as in the broker."""
CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 60.0
"""A peer that sends nothing for so long is broken."""

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

_GO = b"g"
_DONE = b"d"
_LENGTH_BYTES = 4
_ERROR_AT = 4
"""The place of the error code in an answer, behind the correlation id."""
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
        """The port of the listening socket, which functions get as their first argument."""

    def begin(self, function: Callable[[socket.socket, *Args], Result], *args: *Args) -> None:
        """Start `function(listener, *args)` in the process."""
        self._pipe.send((function, args))

    def result(self) -> Any:
        """Return the function's result; CommandError with the error that it raised."""
        try:
            failure, value = self._pipe.recv()
        except EOFError:
            raise CommandError("a load process of the benchmark died") from None
        if failure is not None:
            raise CommandError(f"a load process of the benchmark failed: {failure}")
        return value

    def run(self, function: Callable[[socket.socket, *Args], Result], *args: *Args) -> Result:
        """Run a function in the process, and return its result."""
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
    """Run functions in a worker until the other end of the pipe is closed."""
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(CONNECT_TIMEOUT_S)
        pipe.send((None, listener.getsockname()[1]))
        while True:
            try:
                function, args = pipe.recv()
            except (EOFError, KeyboardInterrupt):
                return
            try:
                value = function(listener, *args)
            except (OSError, CommandError) as error:
                pipe.send((str(error) or type(error).__name__, None))
            else:
                pipe.send((None, value))


class Endpoint(NamedTuple):
    """A listener, and the certificate and password for its clients."""

    port: int
    ca_file: Path | None = None
    """The certificate of the CA; None: no TLS."""
    password: str | None = None
    """None: no log-in."""

    def __repr__(self) -> str:
        return f"Endpoint({self.port})"


def connect(endpoint: Endpoint) -> socket.socket:
    """Return a connection that is ready for requests. CommandError when the log-in is refused."""
    sock = socket.create_connection((HOST, endpoint.port), CONNECT_TIMEOUT_S)
    sock.settimeout(SILENCE_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if endpoint.ca_file is not None:
        context = ssl.create_default_context(cafile=str(endpoint.ca_file))
        sock = context.wrap_socket(sock, server_hostname=HOST)
    if endpoint.password is not None:
        token = f"\0{USER}\0{endpoint.password}".encode()
        handshake = sasl_handshake.SaslHandshakeRequest(mechanism=MECHANISM)
        _log_in(sock, sasl_handshake.API, handshake)
        authenticate = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token)
        _log_in(sock, sasl_authenticate.API, authenticate)
    return sock


def _log_in(sock: socket.socket, spec: ApiSpec[Req, Resp], request: Req) -> None:
    answer = ask(sock, joined(encode_request_frame(spec, 1, 0, CLIENT_ID, request)))
    if error := int.from_bytes(answer[_ERROR_AT : _ERROR_AT + 2], "big"):
        raise CommandError(f"{spec.name} of a client of the benchmark got error {error}")


def ask(sock: socket.socket, frame: bytes) -> bytes:
    """Send a frame, and return the answer without its length."""
    sock.sendall(frame)
    return _received(sock, int.from_bytes(_received(sock, _LENGTH_BYTES), "big"))


def _received(sock: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    _fill(sock, memoryview(data))
    return bytes(data)


def _fill(sock: socket.socket, view: memoryview) -> None:
    while len(view):
        received = sock.recv_into(view[:RECEIVE_BYTES])
        if not received:
            raise CommandError("the other end closed a connection of the benchmark")
        view = view[received:]


def _drop(sock: socket.socket, size: int, buffer: memoryview) -> None:
    """Receive `size` bytes, over and over into `buffer`."""
    while size:
        received = sock.recv_into(buffer, min(size, len(buffer)))
        if not received:
            raise CommandError("the other end closed a connection of the benchmark")
        size -= received


def touch_memory(_listener: socket.socket, folder: Path, size: int) -> None:
    """Have the system use `size` bytes of memory as page cache, and free them."""
    piece = bytes(RECEIVE_BYTES)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(0, size, len(piece)):
            file.write(piece)


# --- the limit: bytes through the loopback ---


def drain(listener: socket.socket, size: int) -> None:
    """Receive `size` bytes on a connection, and confirm them."""
    sock, _ = listener.accept()
    with sock:
        sock.settimeout(SILENCE_TIMEOUT_S)
        _drop(sock, size, memoryview(bytearray(RECEIVE_BYTES)))
        sock.sendall(_DONE)


def push(_listener: socket.socket, port: int, ring: bytes, piece: int, size: int) -> float:
    """Return the seconds to send `size` bytes, `ring` over and over in pieces, to a `drain`."""
    view = memoryview(ring)
    position = 0
    with connect(Endpoint(port)) as sock:
        started = time.perf_counter()
        while size:
            part = view[position : position + min(piece, size)]
            sock.sendall(part)
            size -= len(part)
            position = (position + len(part)) % len(view)
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
    """Return the seconds to receive `size` bytes from a `supply`."""
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    with connect(Endpoint(port)) as sock:
        started = time.perf_counter()
        sock.sendall(_GO)
        _drop(sock, size, buffer)
        return time.perf_counter() - started


# --- producers ---


class _Lane:
    """A producer's connection."""

    def __init__(self, sock: socket.socket, frames: ProduceFrames, requests: int) -> None:
        self.sock = sock
        self._frames = frames
        self._unsent = requests
        self._sent = 0
        self._answers = memoryview(bytearray(requests * len(frames.answer)))
        self._filled = 0

    @property
    def is_done(self) -> bool:
        return self._filled == len(self._answers)

    def send(self, requests: int) -> None:
        """Send as many of the unsent requests, in one piece as far as the ring goes."""
        frames = self._frames
        requests = min(requests, self._unsent)
        self._unsent -= requests
        while requests:
            first = self._sent % frames.count
            some = min(requests, frames.count - first)
            begin = first * frames.frame_bytes
            self.sock.sendall(memoryview(frames.ring)[begin : begin + some * frames.frame_bytes])
            self._sent += some
            requests -= some

    def receive(self) -> int:
        """Receive answers until the last is whole, at least one, and return their number."""
        size = len(self._frames.answer)
        before = self._filled // size
        received = self.sock.recv_into(self._answers[self._filled :])
        if not received:
            raise CommandError("the broker closed a producer's connection")
        self._filled += received
        if left := -self._filled % size:
            _fill(self.sock, self._answers[self._filled : self._filled + left])
            self._filled += left
        return self._filled // size - before

    def check(self) -> None:
        problem = check_answers(bytearray(self._answers), self._frames, first=0)
        if problem is not None:
            raise CommandError(f"a producer got a wrong answer: {problem}")


def produce(
    _listener: socket.socket,
    endpoint: Endpoint,
    frames: ProduceFrames,
    connections: int,
    in_flight: int,
    requests: int,
) -> float:
    """Return the seconds until `requests` requests of each connection are answered, `in_flight` at
    a time; requests that may be sent are sent together, as by clients that have more to send."""
    return produce_to(_listener, [(endpoint, frames)] * connections, in_flight, requests)


def produce_to(
    _listener: socket.socket,
    targets: Sequence[tuple[Endpoint, ProduceFrames]],
    in_flight: int,
    requests: int,
) -> float:
    """Like `produce`, with a connection for each target."""
    lanes = [_Lane(connect(endpoint), frames, requests) for endpoint, frames in targets]
    try:
        started = time.perf_counter()
        for lane in lanes:
            lane.send(in_flight)
        left = lanes
        while left:
            for lane in left:
                lane.send(lane.receive())
            left = [lane for lane in left if not lane.is_done]
        seconds = time.perf_counter() - started
    finally:
        for lane in lanes:
            lane.sock.close()
    for lane in lanes:
        lane.check()
    return seconds


def produce_for(
    _listener: socket.socket,
    endpoint: Endpoint,
    frames: ProduceFrames,
    seconds: float,
    pause_s: float = 0.0,
) -> tuple[float, list[float]]:
    """Send one request after the other for so long, with a pause between. Return the time taken,
    and the milliseconds of each."""
    answer = memoryview(bytearray(len(frames.answer)))
    found: list[float] = []
    with connect(endpoint) as sock:
        started = ended = time.perf_counter()
        while ended - started < seconds:
            time.sleep(pause_s)
            begin = len(found) % frames.count * frames.frame_bytes
            began = time.perf_counter()
            sock.sendall(memoryview(frames.ring)[begin : begin + frames.frame_bytes])
            _fill(sock, answer)
            ended = time.perf_counter()
            found.append((ended - began) * 1000)
    return ended - started, found


# --- consumers ---


def fetch(
    _listener: socket.socket,
    endpoint: Endpoint,
    topic: str,
    consumers: int,
    max_bytes: int,
    step: int,
    answers: int,
    in_flight: int,
) -> float:
    """Return the seconds until each consumer has had `answers` answers of `max_bytes` and `step`
    offsets each, with `in_flight` requests in flight."""
    targets = [(endpoint, topic)] * consumers
    return fetch_from(_listener, targets, max_bytes, step, answers, in_flight)


def fetch_from(
    _listener: socket.socket,
    targets: Sequence[tuple[Endpoint, str]],
    max_bytes: int,
    step: int,
    answers: int,
    in_flight: int,
) -> float:
    """Like `fetch`, with a consumer for each target: a leader, and the topic to fetch."""
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    socks = [connect(endpoint) for endpoint, _ in targets]
    try:
        started = time.perf_counter()
        for number in range(answers + in_flight):
            for sock, (_, topic) in zip(socks, targets, strict=True):
                if number >= in_flight:
                    _receive_batches(sock, max_bytes, (number - in_flight) * step, buffer)
                if number < answers:
                    sock.sendall(fetch_frame(topic, max_bytes, number * step))
        return time.perf_counter() - started
    finally:
        for sock in socks:
            sock.close()


def fetch_for(
    _listener: socket.socket,
    endpoint: Endpoint,
    topic: str,
    max_bytes: int,
    step: int,
    batches: int,
    seconds: float,
) -> tuple[int, float]:
    """Send one request after the other for so long, from the first batch on again and again. Return
    the bytes of the batches, and the time taken."""
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    took = 0.0
    with connect(endpoint) as sock:
        started = time.perf_counter()
        for number in itertools.count(1):
            offset = (number - 1) % batches * step
            sock.sendall(fetch_frame(topic, max_bytes, offset))
            _receive_batches(sock, max_bytes, offset, buffer)
            took = time.perf_counter() - started
            if took >= seconds:
                break
    return number * max_bytes, took


def _receive_batches(sock: socket.socket, max_bytes: int, offset: int, buffer: memoryview) -> None:
    """Receive an answer with `max_bytes` of records from `offset` on. CommandError for others."""
    before = int.from_bytes(_received(sock, _LENGTH_BYTES), "big") - max_bytes
    if not 0 < before < RECEIVE_BYTES:
        raise CommandError(f"a consumer got an answer of {before + max_bytes} bytes")
    head = _received(sock, before + 8)
    if int.from_bytes(head[before:], "big") != offset:
        raise CommandError(f"a consumer got a wrong answer for offset {offset}")
    _drop(sock, max_bytes - 8, buffer)
