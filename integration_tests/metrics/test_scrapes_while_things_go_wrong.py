"""Scrapes while a broker is killed and comes back, and while somebody abuses the address of the
metrics. Source: R-MET1, R-MET3."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from integration_tests.metrics.scraping import scrape, scrape_text, total
from integration_tests.support.cluster_support import create_topic, running_cluster, wait_until
from storage_engine.client import Producer
from storage_engine.tools.local.local_cluster import LocalCluster

TOPIC = "orders"
RECORDS = 150
SLOW_CLIENTS = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        create_topic(made, TOPIC, partitions=3)
        yield made


def _send(cluster: LocalCluster, count: int) -> float:
    """The longest time that an acknowledgement took."""
    longest = 0.0
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(count):
            begun = time.monotonic()
            producer.send(TOPIC, b"%d" % number).result(60)
            longest = max(longest, time.monotonic() - begun)
    return longest


def test_the_others_tell_of_a_killed_broker_and_it_counts_anew_when_it_is_back(cluster):
    _send(cluster, 20)
    messages = "kafka_server_brokertopicmetrics_messagesin_total"
    assert total(scrape(cluster), messages, topic=TOPIC) == 20
    cluster.kill_broker(2)
    wait_until(lambda: cluster.state.broker(2).pid is None, "the broker is gone")
    under = "kafka_server_replicamanager_underreplicatedpartitions"
    wait_until(lambda: total(scrape(cluster), under) >= 3, "replicas out of sync are told")

    def two_are_told() -> bool:
        told = {each.broker: each.value for each in scrape(cluster)["kafka_brokers"]}
        return told == {1: 2, 3: 2}

    wait_until(two_are_told, "both tell of two brokers")
    assert total(scrape(cluster), "kafka_controller_kafkacontroller_activecontrollercount") == 1
    cluster.start_broker(2)
    wait_until(lambda: total(scrape(cluster), under) == 0, "all replicas are in sync")
    assert total(scrape(cluster), "kafka_server_replicamanager_isrexpands_total") >= 3
    _send(cluster, 1)
    assert total(scrape(cluster), messages, topic=TOPIC) <= 21


def test_abuse_of_the_metrics_costs_other_clients_nothing(cluster):
    where = [
        ("127.0.0.1", int(entry.metrics.rpartition(":")[2])) for entry in cluster.state.brokers
    ]
    over = threading.Event()
    abuse = [threading.Thread(target=_abuse, args=(address, over)) for address in where]
    slow = _slow_clients(where)
    for thread in abuse:
        thread.start()
    try:
        assert _send(cluster, RECORDS) < 10
        for entry in cluster.state.brokers:
            assert "kafka_brokers 3" in scrape_text(entry.metrics_url)
    finally:
        over.set()
        for thread in abuse:
            thread.join()
        for sock in slow:
            sock.close()
    assert "headrace_scrape_errors_total" not in scrape(cluster)


def _slow_clients(where: list[tuple[str, int]]) -> list[socket.socket]:
    """They begin a request and never end it, or never take the answer."""
    made = []
    for number in range(SLOW_CLIENTS):
        sock = socket.create_connection(where[number % len(where)], 5)
        with contextlib.suppress(OSError):
            if number % 2:
                sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nSlow: ")
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
        made.append(sock)
    return made


def _abuse(address: tuple[str, int], over: threading.Event) -> None:
    hostile = (
        b"\x00\x00\x00\x10" + bytes(range(256)) * 16,
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000,
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nBig: " + b"x" * 1_000_000,
        b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n..",
        b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n" * 500,
    )
    while not over.is_set():
        for request in hostile:
            with contextlib.suppress(OSError), socket.create_connection(address, 2) as sock:
                sock.settimeout(0.2)
                sock.sendall(request)
                sock.recv(1 << 16)
        over.wait(0.02)
