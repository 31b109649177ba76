"""The client's blocking connection: exact frames, deadlines, no sharing with a forked child."""

import random
import socket
import struct
import threading
import time

import pytest

from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.net.blocking import BlockingConnection, wait_readable
from storage_engine.net.deadline import Deadline
from storage_engine.tests.forked import forked
from storage_engine.tests.net.serving import Holder, echo, framed, running_loop, serving


@pytest.fixture
def thread():
    with running_loop("asyncio") as thread:
        yield thread


def connect(port: int) -> BlockingConnection:
    return BlockingConnection.open("127.0.0.1", port, Deadline.after(5000))


def soon() -> Deadline:
    return Deadline.after(5000)


def test_frames_of_all_sizes_come_back_pipelined(thread):
    chance = random.Random(3)
    payloads = [
        chance.randbytes(n) for n in (0, 5, 65_531, 65_532, 65_533, 200_000, 9, 2_000_000, 1)
    ]
    with serving(thread, echo) as server:
        connection = connect(server.port)
        for payload in payloads:
            connection.send([struct.pack(">I", len(payload)), payload], soon())
        assert [bytes(connection.receive(soon())) for _ in payloads] == payloads
        connection.close()


def test_a_received_frame_outlives_the_next_ones(thread):
    payloads = [bytes([n]) * 300_000 for n in range(5)]
    with serving(thread, echo) as server:
        connection = connect(server.port)
        frames = []
        for payload in payloads:
            connection.send([framed(payload)], soon())
            frames.append(connection.receive(soon()))
        assert [bytes(frame) for frame in frames] == payloads
        connection.close()


def test_silence_ends_at_the_deadline(thread):
    with serving(thread, Holder()) as server:
        connection = connect(server.port)
        connection.send([framed(b"x")], soon())
        started = time.monotonic()
        with pytest.raises(DeadlineExceededError, match="no answer within 100 ms"):
            connection.receive(Deadline.after(100))
        assert time.monotonic() - started < 30
        assert not connection.usable


def test_a_port_where_nobody_listens_is_a_network_error_that_names_it():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    with pytest.raises(KafkaError, match=f"127.0.0.1:{port}: Connection refused") as raised:
        connect(port)
    assert raised.value.code is ErrorCode.NETWORK_EXCEPTION


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 300, "a..b"])
def test_a_host_without_an_address_is_a_network_error(host):
    with pytest.raises(KafkaError, match=rf"{host}:9092"):
        BlockingConnection.open(host, 9092, soon())


def test_a_closed_connection_is_a_network_error(thread):
    def handle(connection, frame):
        connection.close("test")

    with serving(thread, handle) as server:
        connection = connect(server.port)
        connection.send([framed(b"x")], soon())
        with pytest.raises(KafkaError, match="closed the connection"):
            connection.receive(soon())


def test_a_server_of_another_protocol_is_recognised():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve():
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                peer.recv(100)

        server = threading.Thread(target=serve)
        server.start()
        connection = connect(port)
        with pytest.raises(KafkaError, match="not the Kafka protocol"):
            connection.receive(soon())
        connection.close()
        server.join(60)


def is_refused(connection: BlockingConnection) -> bool:
    with pytest.raises(KafkaError):
        connection.send([framed(b"from the child")], soon())
    return not connection.usable


def test_a_forked_child_does_not_use_its_parents_connection(thread):
    with serving(thread, echo) as server:
        connection = connect(server.port)
        assert forked(lambda: is_refused(connection))
        connection.send([framed(b"from the parent")], soon())
        assert bytes(connection.receive(soon())) == b"from the parent"
        connection.close()


def test_wait_readable_tells_which_connections_have_something(thread):
    def handle(connection, frame):
        if frame == b"answer me":
            echo(connection, frame)

    with serving(thread, handle) as server:
        quiet, busy = connect(server.port), connect(server.port)
        assert wait_readable([quiet, busy], 0) == []
        quiet.send([framed(b"nothing")], soon())
        busy.send([framed(b"answer me"), framed(b"answer me")], soon())
        assert wait_readable([quiet, busy], 5000) == [busy]
        busy.receive(soon())
        busy.receive(soon())
        quiet.close()
        busy.close()
