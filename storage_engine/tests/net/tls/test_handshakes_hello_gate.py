"""The gate before TLS handshakes: who is let in, when, and how many in a turn of the loop."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable

import pytest

from storage_engine.net.event_loop_ports import new_event_loop
from storage_engine.net.tls.handshakes import HelloGate

LONG_S = 30.0
HELLO = b"\x16\x03\x01\x00\x10" + bytes(16)


class Gated:
    """A gate on a loop that the test runs, and what becomes of its sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop, per_turn: int = 2) -> None:
        self.loop = loop
        self.turn = 0
        self.admitted: list[int] = []
        """The turns in which each was let in."""
        self.refused: list[str] = []
        self.gate = HelloGate(loop, lambda: per_turn, self._admit, self._refuse)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._clients: list[socket.socket] = []

    def _admit(self, sock: socket.socket) -> None:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1
        self.admitted.append(self.turn)
        sock.close()

    def _refuse(self, sock: socket.socket, reason: str) -> None:
        self.refused.append(reason)
        sock.close()

    def client(self, data: bytes = b"") -> socket.socket:
        client = socket.create_connection(self._listener.getsockname())
        accepted, _ = self._listener.accept()
        accepted.setblocking(False)
        client.sendall(data)
        self._clients.append(client)
        self.gate.wait(accepted)
        return client

    def run(self, until: Callable[[], bool] = lambda: False, seconds: float = 0.05) -> None:
        """Turns of the loop until something is so, or for a while."""
        deadline = time.monotonic() + seconds

        async def turns() -> None:
            while not until() and time.monotonic() < deadline:
                self.turn += 1
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    def close(self) -> None:
        self.gate.close()
        for sock in (self._listener, *self._clients):
            sock.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request):
    loop = asyncio.new_event_loop() if request.param == "asyncio" else new_event_loop()
    with contextlib.closing(loop):
        yield loop


@pytest.fixture
def gated(loop):
    with contextlib.closing(Gated(loop)) as made:
        yield made


def test_a_crowd_is_let_in_a_few_a_turn(gated):
    for _ in range(11):
        gated.client(HELLO)
    gated.run(lambda: len(gated.admitted) == 11, LONG_S)
    assert len(gated.admitted) == 11
    assert max(gated.admitted.count(turn) for turn in gated.admitted) == 2
    assert not gated.refused


def test_who_has_said_only_part_of_it_waits(gated):
    for size in (0, 4, 5, 20):
        gated.client(HELLO[:size])
    gated.run()
    assert (gated.admitted, gated.refused, len(gated.gate)) == ([], [], 4)


def test_the_rest_may_come_in_pieces(gated):
    client = gated.client()
    for byte in HELLO:
        assert not gated.admitted
        client.sendall(bytes([byte]))
        gated.run(seconds=0.001)
    gated.run(lambda: bool(gated.admitted), LONG_S)
    assert len(gated.admitted) == 1


def test_who_goes_before_is_forgotten(gated):
    for size in (0, 3, 7):
        gated.client(HELLO[:size]).close()
    gated.run(lambda: len(gated.refused) == 3, LONG_S)
    assert len(gated.refused) == 3
    assert all("has gone" in reason for reason in gated.refused)


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1", b"\x00\x00\x00\x20\x00\x12", b"\x16\x03\x01\x40\x01", b"\x16\x03\x01\0\0"],
)
def test_what_is_no_tls_is_refused(gated, data):
    gated.client(data)
    gated.run(lambda: bool(gated.refused), LONG_S)
    assert gated.refused == ["it does not speak TLS: is its security.protocol right?"]


def test_a_gate_that_closes_refuses_all(gated):
    gated.client()
    gated.client(HELLO)
    gated.gate.close()
    assert gated.refused == ["the broker stops"] * 2
    assert len(gated.gate) == 0
