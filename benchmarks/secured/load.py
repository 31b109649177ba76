"""Clients of a listener that is open, or that asks for TLS and a log-in: they run in a `Worker`.

Each is blocking, so that the same lines move the same bytes with TLS and without. They log in by
PLAIN, which every side of the comparison has; what follows does not depend on the mechanism.
"""

import itertools
import socket
import ssl
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.support.wire_frames import (
    CLIENT_ID,
    ProduceFrames,
    check_answers,
    fetch_frame,
)
from benchmarks.support.wire_load import (
    CONNECT_TIMEOUT_S,
    HOST,
    RECEIVE_BYTES,
    SILENCE_TIMEOUT_S,
)
from storage_engine.protocol.apis.spec import AnyApi
from storage_engine.protocol.framing import encode_request_frame
from storage_engine.protocol.messages import sasl_authenticate, sasl_handshake
from storage_engine.tools.errors import CommandError

USER = "app"
MECHANISM = "PLAIN"

_LENGTH_BYTES = 4
_ERROR_AT = 4
"""Behind the correlation id of an answer."""


class Endpoint(NamedTuple):
    """A listener, and what it asks for."""

    port: int
    ca_file: Path | None = None
    """None: it speaks no TLS."""
    password: str | None = None
    """None: it asks nobody who they are."""

    def __repr__(self) -> str:
        return f"Endpoint({self.port})"


def connect(endpoint: Endpoint) -> socket.socket:
    """A connection that is ready for requests. CommandError when the log-in is refused."""
    sock = socket.create_connection((HOST, endpoint.port), CONNECT_TIMEOUT_S)
    sock.settimeout(SILENCE_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if endpoint.ca_file is not None:
        context = ssl.create_default_context(cafile=str(endpoint.ca_file))
        sock = context.wrap_socket(sock, server_hostname=HOST)
    if endpoint.password is not None:
        token = f"\0{USER}\0{endpoint.password}".encode()
        handshake = sasl_handshake.SaslHandshakeRequest(mechanism=MECHANISM)
        _ask(sock, sasl_handshake.API, 1, handshake)
        authenticate = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token)
        _ask(sock, sasl_authenticate.API, 1, authenticate)
    return sock


def _ask(sock: socket.socket, spec: AnyApi, version: int, request: Any) -> None:
    sock.sendall(b"".join(encode_request_frame(spec, version, 0, CLIENT_ID, request)))  # type: ignore[arg-type]
    answer = bytearray(int.from_bytes(_received(sock, _LENGTH_BYTES), "big"))
    receive(sock, memoryview(answer))
    error = int.from_bytes(answer[_ERROR_AT : _ERROR_AT + 2], "big")
    if error:
        raise CommandError(f"{spec.name} of a client of the benchmark got error {error}")


def receive(sock: socket.socket, view: memoryview) -> None:
    """Fill the view."""
    while len(view):
        received = sock.recv_into(view[:RECEIVE_BYTES])
        if not received:
            raise CommandError("the broker closed a connection of the benchmark")
        view = view[received:]


def _received(sock: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    receive(sock, memoryview(data))
    return bytes(data)


class _Lane:
    """A producer's connection."""

    __slots__ = ("_answers", "_filled", "_frames", "_sent", "sock")

    def __init__(self, sock: socket.socket, frames: ProduceFrames, requests: int) -> None:
        self.sock = sock
        self._frames = frames
        self._answers = memoryview(bytearray(requests * len(frames.answer)))
        self._sent = 0
        self._filled = 0

    def send(self) -> None:
        frames = self._frames
        begin = self._sent % frames.count * frames.frame_bytes
        self.sock.sendall(memoryview(frames.ring)[begin : begin + frames.frame_bytes])
        self._sent += 1

    def send_many(self, requests: int) -> None:
        """In one piece, as far as the ring goes."""
        frames = self._frames
        while requests:
            first = self._sent % frames.count
            some = min(requests, frames.count - first)
            begin = first * frames.frame_bytes
            self.sock.sendall(memoryview(frames.ring)[begin : begin + some * frames.frame_bytes])
            self._sent += some
            requests -= some

    def receive(self) -> None:
        size = len(self._frames.answer)
        receive(self.sock, self._answers[self._filled : self._filled + size])
        self._filled += size

    def receive_some(self) -> int:
        """As many whole answers as have come, at least one."""
        size = len(self._frames.answer)
        before = self._filled // size
        received = self.sock.recv_into(self._answers[self._filled :])
        if not received:
            raise CommandError("the broker closed a connection of the benchmark")
        self._filled += received
        if self._filled % size:
            left = size - self._filled % size
            receive(self.sock, self._answers[self._filled : self._filled + left])
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
    """Seconds until `requests` large requests of each connection are answered, with so many in
    flight; the connections take turns."""
    lanes = [_Lane(connect(endpoint), frames, requests) for _ in range(connections)]
    try:
        started = time.perf_counter()
        for number in range(requests + in_flight):
            for lane in lanes:
                if number >= in_flight:
                    lane.receive()
                if number < requests:
                    lane.send()
        seconds = time.perf_counter() - started
    finally:
        for lane in lanes:
            lane.sock.close()
    for lane in lanes:
        lane.check()
    return seconds


def produce_small(
    _listener: socket.socket,
    endpoint: Endpoint,
    frames: ProduceFrames,
    in_flight: int,
    requests: int,
) -> float:
    """Seconds until `requests` small requests of one connection are answered; what may be sent is
    sent together, as clients do that have more to send."""
    lane = _Lane(connect(endpoint), frames, requests)
    with lane.sock:
        started = time.perf_counter()
        lane.send_many(min(in_flight, requests))
        unsent = requests - min(in_flight, requests)
        left = requests
        while left:
            answered = lane.receive_some()
            left -= answered
            more = min(answered, unsent)
            lane.send_many(more)
            unsent -= more
        seconds = time.perf_counter() - started
    lane.check()
    return seconds


def fetch(
    _listener: socket.socket,
    endpoint: Endpoint,
    topic: str,
    max_bytes: int,
    step: int,
    answers: int,
    in_flight: int,
) -> float:
    """Seconds until a consumer has had `answers` answers of `max_bytes` and `step` offsets each."""
    answer = memoryview(bytearray(max_bytes + RECEIVE_BYTES))
    with connect(endpoint) as sock:
        started = time.perf_counter()
        for number in range(answers + in_flight):
            if number >= in_flight:
                size = int.from_bytes(_received(sock, _LENGTH_BYTES), "big")
                if not max_bytes < size <= len(answer):
                    raise CommandError(f"a consumer got an answer of {size} bytes")
                receive(sock, answer[:size])
                first = int.from_bytes(answer[size - max_bytes : size - max_bytes + 8], "big")
                if first != (number - in_flight) * step:
                    raise CommandError(f"a consumer got offset {first} out of order")
            if number < answers:
                sock.sendall(fetch_frame(topic, max_bytes, number * step))
        return time.perf_counter() - started


def produce_for(
    _listener: socket.socket, endpoint: Endpoint, frames: ProduceFrames, seconds: float
) -> tuple[int, float]:
    """One request after the other for so long: the bytes of those that were answered, and how long
    it took."""
    answer = memoryview(bytearray(len(frames.answer)))
    with connect(endpoint) as sock:
        started = time.perf_counter()
        for number in itertools.count(1):
            begin = (number - 1) % frames.count * frames.frame_bytes
            sock.sendall(memoryview(frames.ring)[begin : begin + frames.frame_bytes])
            receive(sock, answer)
            took = time.perf_counter() - started
            if took >= seconds:
                return number * (frames.frame_bytes - _LENGTH_BYTES), took
    raise AssertionError


def fetch_for(
    _listener: socket.socket,
    endpoint: Endpoint,
    topic: str,
    max_bytes: int,
    step: int,
    batches: int,
    seconds: float,
) -> tuple[int, float]:
    """One request after the other for so long, from the first batch on again and again: the bytes
    of the batches, and how long it took."""
    answer = memoryview(bytearray(max_bytes + RECEIVE_BYTES))
    with connect(endpoint) as sock:
        started = time.perf_counter()
        for number in itertools.count(1):
            sock.sendall(fetch_frame(topic, max_bytes, (number - 1) % batches * step))
            size = int.from_bytes(_received(sock, _LENGTH_BYTES), "big")
            if not max_bytes < size <= len(answer):
                raise CommandError(f"a consumer got an answer of {size} bytes")
            receive(sock, answer[:size])
            took = time.perf_counter() - started
            if took >= seconds:
                return number * max_bytes, took
    raise AssertionError


def latencies(
    _listener: socket.socket, endpoint: Endpoint, frames: ProduceFrames, seconds: float
) -> list[float]:
    """Milliseconds of each of the small requests, one after the other with a pause between."""
    answer = memoryview(bytearray(len(frames.answer)))
    found: list[float] = []
    with connect(endpoint) as sock:
        until = time.perf_counter() + seconds
        for number in itertools.count():
            begin = number % frames.count * frames.frame_bytes
            began = time.perf_counter()
            sock.sendall(memoryview(frames.ring)[begin : begin + frames.frame_bytes])
            receive(sock, answer)
            ended = time.perf_counter()
            found.append((ended - began) * 1000)
            if ended >= until:
                return found
            time.sleep(_PAUSE_S)
    raise AssertionError


_PAUSE_S = 0.002
