"""A server on a thread of its own, and raw sockets to talk to it."""

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from storage_engine.net.connection import Connection
from storage_engine.net.event_loop_ports import new_event_loop
from storage_engine.net.frames import Exchange
from storage_engine.net.limits import ServerLimits
from storage_engine.net.server import Server
from storage_engine.net.serving import ServedListener

TIMEOUT_S = 60.0


class LoopThread:
    """An event loop that runs; `call` runs a function on it and returns its result."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._thread = threading.Thread(target=loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return function()

        return self.run(run())

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(TIMEOUT_S)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(TIMEOUT_S)
        self.loop.close()


def loop_of(kind: str) -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop() if kind == "asyncio" else new_event_loop()


@contextlib.contextmanager
def running_loop(kind: str) -> Iterator[LoopThread]:
    thread = LoopThread(loop_of(kind))
    try:
        yield thread
    finally:
        thread.stop()


@contextlib.contextmanager
def serving(
    thread: LoopThread,
    handle: Callable[[Connection, memoryview], None],
    port: int = 0,
    **limits: Any,
) -> Iterator[Server]:
    listener = ServedListener(host="127.0.0.1", port=port, handle=handle)
    server = Server(thread.loop, [listener], ServerLimits(**limits))
    thread.run(server.start())
    try:
        yield server
    finally:
        thread.run(server.close(grace_ms=100))


class Client:
    """A raw socket that speaks frames."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)

    def send(self, *payloads: bytes) -> None:
        self.socket.sendall(b"".join(framed(payload) for payload in payloads))

    def receive(self) -> bytes:
        return self.exactly(struct.unpack(">I", self.exactly(4))[0])

    def exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def closed_by_server(self) -> bool:
        """Reads up to the end of the stream; False when there is none in time."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def framed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def echo(connection: Connection, frame: memoryview) -> None:
    connection.begin().respond([framed(bytes(frame))])


class Holder:
    """A handler that answers later, when a test says so."""

    def __init__(self) -> None:
        self.held: list[tuple[Exchange, bytes]] = []

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        self.held.append((connection.begin(), bytes(frame)))

    def holds(self, count: int) -> bool:
        return len(self.held) == count

    def wait_for(self, count: int) -> None:
        eventually(lambda: len(self.held) >= count)


def eventually(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.002)


def stays(condition: Callable[[], bool], seconds: float = 0.1) -> bool:
    """Whether `condition` holds all the time for a while."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not condition():
            return False
        time.sleep(0.005)
    return True
