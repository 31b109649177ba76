"""A crowd that does not log in, or does so wrongly: the broker keeps its memory, and serves those
who have logged in."""

import contextlib
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.security.secured_cluster import SecuredCluster, secured_cluster
from integration_tests.support.brokers_by_hand import HOST
from storage_engine.protocol.framing import encode_request_frame
from storage_engine.protocol.messages import sasl_authenticate, sasl_handshake
from storage_engine.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from storage_engine.protocol.messages.sasl_handshake import SaslHandshakeRequest

CROWD = 1500
"""More than the broker lets try at a time."""
MEMORY_MIB = 150
"""What they may take of it: 1,000 of them at 32 KiB each, twice, and the connections themselves."""
ANSWER_S = 15.0
"""A crowd that held others up would do so until its time is over, or until it leaves."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with secured_cluster(tmp_path_factory.mktemp("strangers")) as cluster:
        yield cluster


def resident_mib(cluster: SecuredCluster) -> float:
    pid = cluster.brokers.pid(1)
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (each for each in lines if each.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def handshake(mechanism: str) -> bytes:
    request = SaslHandshakeRequest(mechanism=mechanism)
    return b"".join(map(bytes, encode_request_frame(sasl_handshake.API, 1, 1, "x", request)))


def token(data: bytes) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=data)
    return b"".join(map(bytes, encode_request_frame(sasl_authenticate.API, 2, 2, "x", request)))


def connected(cluster: SecuredCluster, listener: str = "SASL") -> socket.socket:
    return socket.create_connection((HOST, cluster.brokers.port(1, listener)), timeout=10)


def slowest_answer_s(client: AdminClient, *, for_s: float) -> float:
    slowest = 0.0
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        began = time.monotonic()
        assert client.list_topics(timeout=30).brokers
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def test_a_crowd_that_begins_and_does_not_end_leaves_room_for_others(cluster):
    known = AdminClient(cluster.bob("SASL"))
    assert known.list_topics(timeout=30).brokers
    before = resident_mib(cluster)
    with contextlib.ExitStack() as stack:
        for number in range(CROWD):
            each = stack.enter_context(connected(cluster))
            with contextlib.suppress(OSError):
                # A token of nearly as much as is read, but for its end.
                each.sendall(handshake("PLAIN") + token(bytes(32_000))[: number * 21])
        assert slowest_answer_s(known, for_s=2) < ANSWER_S
        assert resident_mib(cluster) - before < MEMORY_MIB
        # Those that had time enough have made room.
        assert AdminClient(cluster.bob("SASL")).list_topics(timeout=30).brokers
    assert "others have not logged in yet" in cluster.brokers.log(1)


def test_guesses_and_garbage_hold_up_nobody(cluster):
    known = AdminClient(cluster.bob("SASL"))
    assert known.list_topics(timeout=30).brokers
    stop = threading.Event()
    shots = [
        handshake("PLAIN") + token(b"\0alice\0guess"),
        handshake("SCRAM-SHA-512") + token(b"n,,n=" + b"\xc2\xad" * 900 + b",r=x"),
        handshake("OAUTHBEARER") + token(b"n,,\x01auth=Bearer " + b"e30." * 9000 + b"\x01\x01"),
        handshake("OAUTHBEARER") + struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -5),
        bytes(range(256)),
    ]

    def shoot(number: int) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), connected(cluster) as each:
                each.sendall(shots[number % len(shots)])
                each.recv(65536)
                number += 1

    threads = [threading.Thread(target=shoot, args=(number,)) for number in range(14)]
    before = resident_mib(cluster)
    for thread in threads:
        thread.start()
    try:
        assert slowest_answer_s(known, for_s=2) < ANSWER_S
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert resident_mib(cluster) - before < MEMORY_MIB
    assert "unexpected error" not in cluster.brokers.log(1)
