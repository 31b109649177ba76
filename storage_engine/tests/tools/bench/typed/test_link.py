"""A link of a known speed."""

import os
import socket
import threading
import time

from benchmarks.support.brokers import HOST
from benchmarks.typed.link import Link
from storage_engine.tools.local.free_ports import find_free_port

LINK_BITS = 40_000_000


def test_the_link_carries_what_it_is_given_at_its_speed_and_counts_it(tmp_path):
    data = os.urandom(1 << 20)
    before = find_free_port(HOST, avoid=())
    with socket.create_server((HOST, 0)) as server:
        threading.Thread(target=send_to_one, args=(server, data), daemon=True).start()
        with Link.running(tmp_path, {before: server.getsockname()[1]}, LINK_BITS) as link:
            started = time.perf_counter()
            with socket.create_connection((HOST, before)) as client:
                found = b"".join(iter(lambda: client.recv(1 << 16), b""))
            took_s = time.perf_counter() - started
            assert found == data
            assert link.sent() == len(data)
    assert took_s >= len(data) * 8 / LINK_BITS * 0.95


def send_to_one(server: socket.socket, data: bytes) -> None:
    with server.accept()[0] as connection:
        connection.sendall(data)
