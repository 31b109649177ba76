"""A connection to a simulated broker, without a socket."""

import socket
from collections.abc import Callable

from simulation.world.cluster import SimulatedCluster
from storage_engine.net.connection import Connection
from storage_engine.net.limits import ServerLimits
from storage_engine.net.server import Server
from storage_engine.net.serving import ServedListener
from storage_engine.protocol.apis import produce
from storage_engine.protocol.framing import encode_request_frame

TOPICS = ("t", "u")
FRAME_MAX_BYTES = 4000
SMALL, LARGE = 100, 100_000
"""Bytes of records on both sides of what is copied."""


class Wire:
    """A transport that keeps what is sent, in place of a socket."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False
        self.reading = True
        self._socket = socket.socket()

    def get_extra_info(self, name):
        return self._socket if name == "socket" else ("10.0.0.1", 1)

    def set_write_buffer_limits(self, high):
        pass

    def write(self, data):
        self.sent += bytes(data)

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    abort = close

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def get_write_buffer_size(self):
        return 1  # so that nothing is written past us


class TurnLoop:
    """The part of an event loop that a server's connections use."""

    def __init__(self) -> None:
        self.soon: list = []

    def call_soon(self, callback, *args):
        self.soon.append((callback, args))

    def run(self) -> None:
        while self.soon:
            soon, self.soon = self.soon, []
            for callback, args in soon:
                callback(*args)


class UntimedServer(Server):
    """Its turns end where the test wants it: a busy machine changes no outcome."""

    ends_turn: Callable[[], bool]

    @property
    def turn_is_over(self) -> bool:
        return self.ends_turn()


class Client:
    """A connection to a simulated broker."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        *,
        frame_max_bytes: int = FRAME_MAX_BYTES,
        ends_turn: Callable[[], bool] = lambda: False,
    ) -> None:
        self._cluster = cluster
        self._loop = TurnLoop()
        listener = ServedListener(host="", handle=cluster[1].parts.dispatcher)
        server = UntimedServer(
            self._loop,
            [listener],
            ServerLimits(request_max_bytes=frame_max_bytes, pending_per_connection=5),
        )
        server.ends_turn = ends_turn
        self.wire = Wire()
        self.connection = Connection(server, listener)
        self.connection.connection_made(self.wire)

    def receive(self, data: bytes) -> None:
        while data and not self.wire.closed:
            self.wait_until_read()
            if not self.wire.reading:
                continue
            buffer = self.connection.get_buffer(-1)
            part = data[: len(buffer)]
            buffer[: len(part)] = part
            self.connection.buffer_updated(len(part))
            data = data[len(part) :]
            self._loop.run()

    def wait_until_read(self) -> None:
        """A halted connection waits for answers, which come with time."""
        while not (self.wire.reading or self.wire.closed):
            self.turn()

    def turn(self) -> None:
        self._cluster.loop.run_for(50)
        self._loop.run()

    def end(self) -> bytes:
        self.wait_until_read()
        for _ in range(3):
            self.turn()
        self.connection.connection_lost(None)
        self._loop.run()
        self.wire._socket.close()
        return self.wire.sent


def frame(
    version, correlation_id, batches, *, topic="t", partition=0, acks=1, client="c", name=None
):
    items = [produce.ProducePartition(topic, partition, batch) for batch in batches]
    request = produce.ProduceRequest(name, acks, 1000, items)
    return b"".join(encode_request_frame(produce.API, version, correlation_id, client, request))
