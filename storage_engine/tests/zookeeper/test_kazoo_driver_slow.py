"""Connections to ZooKeeper that are slow, or on which nothing comes any more: how long answers are
waited for."""

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.exceptions import ConnectionDropped

from storage_engine.core.ports import SessionState
from storage_engine.tests.zookeeper.loop import HandLoop, RealClock
from storage_engine.zookeeper.embedded import EmbeddedZooKeeper
from storage_engine.zookeeper.kazoo_driver import WAITS_PER_TIMEOUT, LoopHandler
from storage_engine.zookeeper.session import ZooKeeperSession

pytestmark = pytest.mark.slow

SESSION_MS = 2_400
"""At this timeout kazoo's draw takes most of the wait for a ping: half of it."""
WAIT_S = SESSION_MS / 1000 / WAITS_PER_TIMEOUT
LATENCY_S = 0.25
"""Each way: a round trip is longer than the shortest wait that kazoo draws, 0.4 s, and well within
WAIT_S."""


class LatentProxy:
    """Forwards a port of its own, on a thread; every chunk arrives LATENCY_S later."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.connections = 0
        """So many were made."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self) -> int:
        """The port."""
        self._thread.start()
        made = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(made, self._loop).result(60)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def stop(self) -> None:
        async def close() -> None:
            self._server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(1 << 16):
                self._loop.call_later(LATENCY_S, sink.write, chunk)
        except OSError:
            pass
        finally:
            self._loop.call_later(LATENCY_S, sink.close)


class FullDraw:
    """kazoo's source of chance, which always takes the most from the wait for a ping."""

    shuffle = staticmethod(random.shuffle)

    @staticmethod
    def randint(_least: int, most: int) -> int:
        return most


@pytest.fixture
def proxy(zookeeper: EmbeddedZooKeeper) -> Iterator[tuple[LatentProxy, int]]:
    made = LatentProxy(zookeeper.port)
    port = made.start()
    yield made, port
    made.stop()


def test_a_slow_connection_is_kept(
    proxy: tuple[LatentProxy, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller loses the answers that are under way when a connection is given up."""
    monkeypatch.setattr("kazoo.protocol.connection.random", FullDraw)
    between, port = proxy
    # A loop that does not turn yet sends no heartbeats: the pings are alone.
    loop = HandLoop()
    states: list[SessionState] = []
    session = ZooKeeperSession(f"127.0.0.1:{port}", SESSION_MS, loop.call_soon, clock=RealClock())
    session.add_state_listener(states.append)
    try:
        session.start(30_000)
        made = between.connections
        time.sleep(2 * SESSION_MS / 1000)
        assert between.connections == made
        assert loop.reply_of(session.exists, "/").ok
        assert SessionState.SUSPENDED not in states
    finally:
        session.close()


class Pinging:
    """As much of kazoo's client as its handler looks at: a connection with an open ping."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = self
        self._socket = connection
        self.ping_outstanding = threading.Event()
        self.ping_outstanding.set()
        self._pending: list[object] = []
        """The requests that were sent and are not answered."""


@pytest.fixture
def wires() -> Iterator[tuple[socket.socket, ...]]:
    """The connection's two ends, and those of kazoo's own alarm."""
    ends = (*socket.socketpair(), *socket.socketpair())
    yield ends
    for end in ends:
        end.close()


def handler_of(client: Pinging, *, servers: int = 1) -> LoopHandler:
    handler = LoopHandler(
        lambda _work: None, lambda: None, session_timeout_ms=SESSION_MS, servers=servers
    )
    handler.watch_over(client)
    return handler


def waited_s(select: Callable[[], object]) -> float:
    """Until the connection is given up."""
    began_s = time.monotonic()
    with pytest.raises(ConnectionDropped, match="no answer for"):
        while time.monotonic() < began_s + 10 * WAIT_S:
            select()
    return time.monotonic() - began_s


def test_a_connection_without_answers_is_given_up_in_time_for_another(
    wires: tuple[socket.socket, ...],
) -> None:
    near, _far, alarm, _ = wires
    handler = handler_of(Pinging(near))
    assert WAIT_S <= waited_s(lambda: handler.select([near, alarm], [], [], 0.01)) < 2 * WAIT_S


def test_what_is_sent_meanwhile_does_not_prolong_the_wait(
    wires: tuple[socket.socket, ...],
) -> None:
    near, _far, alarm, ringer = wires
    handler = handler_of(Pinging(near))
    ringer.send(b"x")  # there is always something to send
    assert WAIT_S <= waited_s(lambda: handler.select([near, alarm], [], [], 9)) < 2 * WAIT_S


def test_whatever_comes_prolongs_it(wires: tuple[socket.socket, ...]) -> None:
    near, far, alarm, _ = wires
    handler = handler_of(Pinging(near))
    end_s = time.monotonic() + 2 * WAIT_S
    while time.monotonic() < end_s:
        far.send(b"x")
        assert handler.select([near, alarm], [], [], 9)[0] == [near]
        near.recv(1)
        time.sleep(WAIT_S / 8)


def test_the_wait_goes_by_the_timeout_that_zookeeper_allows(
    wires: tuple[socket.socket, ...],
) -> None:
    near, _far, alarm, _ = wires
    handler = handler_of(Pinging(near))
    handler.session_timeout_is(2 * SESSION_MS)
    assert waited_s(lambda: handler.select([near, alarm], [], [], 0.01)) >= 2 * WAIT_S


def test_a_request_without_an_answer_counts_as_a_ping_does(
    wires: tuple[socket.socket, ...],
) -> None:
    """Heartbeats are requests, and put off kazoo's pings."""
    near, _far, alarm, _ = wires
    client = Pinging(near)
    client.ping_outstanding.clear()
    handler = handler_of(client)
    assert handler.select([near, alarm], [], [], 2 * WAIT_S) == ([], [], [])
    client._pending.append("heartbeat")
    assert WAIT_S <= waited_s(lambda: handler.select([near, alarm], [], [], 9)) < 2 * WAIT_S


@pytest.fixture
def listening() -> Iterator[tuple[str, int]]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


def connected(handler: LoopHandler, address: tuple[str, int]) -> bool:
    try:
        handler.create_connection(address=address, hostname=address[0]).close()
    except ConnectionDropped:
        return False
    return True


@pytest.mark.parametrize("servers", [1, 2])
def test_a_silent_server_is_asked_again_only_after_the_others(
    wires: tuple[socket.socket, ...], listening: tuple[str, int], servers: int
) -> None:
    near, _far, alarm, _ = wires
    handler = handler_of(Pinging(near), servers=servers)
    assert connected(handler, listening)
    waited_s(lambda: handler.select([near, alarm], [], [], 0.01))
    with socket.create_server(("127.0.0.1", 0)) as other:
        is_alone = servers == 1
        assert connected(handler, listening) == is_alone
        assert connected(handler, other.getsockname())
    time.sleep(WAIT_S)
    assert connected(handler, listening)
