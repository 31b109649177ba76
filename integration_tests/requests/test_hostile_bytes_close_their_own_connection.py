"""R-NET3: broken frames cost the connection they came on, and nothing else."""

import random
import socket
import struct

import pytest
from confluent_kafka import Producer

from integration_tests.support.cluster_support import admin, create_topic, leader_of, wait_until
from storage_engine.tests.sampling import ALL_FAULTS

HEADER = struct.pack(">hhih", 3, 1, 7, -1)


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _produce_frame(records: bytes) -> bytes:
    """A Produce of version 3 with these records for partition 0 of the topic `unharmed`."""
    topic = b"unharmed"
    body = struct.pack(">hhih", 0, 3, 1, -1) + struct.pack(">hhi", -1, -1, 1000)
    body += struct.pack(">ih", 1, len(topic)) + topic
    body += struct.pack(">iii", 1, 0, len(records)) + records
    return _frame(body)


CLOSING = {
    "a negative size": struct.pack(">i", -1),
    "a huge size": struct.pack(">i", 2**31 - 1),
    "an empty frame": _frame(b""),
    "half a header": _frame(b"\x00\x03\x00"),
    "an unknown api": _frame(struct.pack(">hhih", 999, 0, 1, -1)),
    "an unknown version": _frame(struct.pack(">hhih", 3, 99, 1, -1)),
    "a client id that is longer than the frame": _frame(struct.pack(">hhih", 3, 1, 1, 500)),
    "a count of two billion topics": _frame(HEADER + struct.pack(">i", 2**31 - 1)),
    "a negative count": _frame(HEADER + struct.pack(">i", -7)),
    "a string beyond the end": _frame(HEADER + struct.pack(">ih", 1, 2000)),
    "bytes left over": _frame(struct.pack(">hhih", 2, 1, 7, -1) + struct.pack(">ii", -1, 0) + b"x"),
    "an endless varint": _frame(struct.pack(">hhih", 18, 3, 7, -1) + b"\xff" * 40),
    "an http request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


def _connect(cluster, broker_id: int) -> socket.socket:
    entry = cluster.state.broker(broker_id)
    connection = socket.create_connection((entry.host, entry.port), timeout=60)
    connection.settimeout(60)
    return connection


def _is_closed_by_peer(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture(scope="module")
def served(cluster):
    """A cluster with a topic, and a producer on it whose connection must survive."""
    create_topic(cluster, "unharmed")
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0}
    )
    leader = leader_of(admin(cluster), "unharmed")
    return cluster, producer, leader


def _assert_unharmed(producer: Producer) -> None:
    outcomes = []
    producer.produce(
        "unharmed", b"still here", partition=0, on_delivery=lambda e, _m: outcomes.append(e)
    )
    assert producer.flush(60) == 0
    assert outcomes == [None]


@pytest.mark.parametrize("name", CLOSING)
def test_a_broken_frame_closes_its_own_connection_only(served, name):
    cluster, producer, leader = served
    with _connect(cluster, leader) as hostile, _connect(cluster, leader) as neighbour:
        hostile.sendall(CLOSING[name])
        assert _is_closed_by_peer(hostile)
        neighbour.sendall(_frame(struct.pack(">hhih", 18, 0, 42, -1)))
        assert neighbour.recv(8)[4:] == struct.pack(">i", 42)
    _assert_unharmed(producer)


def test_random_bytes_never_stop_a_broker(served):
    cluster, producer, leader = served
    seed = random.Random(20130101)
    for _ in range(200):
        with _connect(cluster, leader) as hostile:
            body = seed.randbytes(seed.randrange(1, 200))
            if seed.random() < 0.7:
                key, version = seed.choice([0, 1, 2, 3, 8, 9, 18, 19, 20, 22, 23, 32]), 0
                body = struct.pack(">hhih", key, version + seed.randrange(8), 5, -1) + body
            hostile.sendall(_frame(body))
            hostile.shutdown(socket.SHUT_WR)
            while True:
                try:
                    if not hostile.recv(4096):
                        break
                except ConnectionResetError:
                    break
    _assert_unharmed(producer)
    assert cluster.state.broker(leader).pid is not None


def test_a_client_that_is_refused_for_ever_does_not_fill_the_log(served):
    cluster, producer, leader = served
    log = cluster.directory / cluster.state.broker(leader).log_file
    begun = len(log.read_bytes())
    for _ in range(300):
        with _connect(cluster, leader) as hostile:
            hostile.sendall(CLOSING["an unknown version"])
            assert _is_closed_by_peer(hostile)
    new = log.read_bytes()[begun:].decode()
    # Ten in ten seconds, and on slow machines some such periods; the others are counted.
    assert new.count("version 99 is not served") <= 150
    _assert_unharmed(producer)
    if ALL_FAULTS:
        wait_until(
            lambda: "lines left out count=" in log.read_bytes()[begun:].decode(),
            "the lines that were left out are told after ten seconds",
        )


@pytest.mark.parametrize("records", [b"", b"\x00" * 61, b"\xff" * 200, bytes(range(256)) * 8])
def test_records_that_are_no_batches_get_a_typed_error(served, records):
    cluster, producer, leader = served
    with _connect(cluster, leader) as hostile:
        hostile.sendall(_produce_frame(records))
        size = struct.unpack(">i", hostile.recv(4, socket.MSG_WAITALL))[0]
        answer = hostile.recv(size, socket.MSG_WAITALL)
    # correlation id, one topic with its name, one partition with its index, then the error code
    position = 4 + 4 + 2 + len(b"unharmed") + 4 + 4
    error_code = struct.unpack_from(">h", answer, position)[0]
    assert error_code in (2, 43, 42, 87)
    _assert_unharmed(producer)
