"""Connections to brokers: found, kept for the next request, replaced when closed (R-CLI1)."""

import socket
import threading
import time

import pytest

from storage_engine.client.cluster import LATEST, Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.metadata import API as METADATA
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.tests.client.fake_cluster import Fault
from storage_engine.tests.forked import forked

T0 = TopicPartition("t", 0)


def refused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_no_broker_is_one_line_that_names_every_address_and_comes_in_time():
    ports = [refused_port(), refused_port()]
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    started = time.monotonic()
    with pytest.raises(KafkaError) as raised:
        Cluster(servers, bootstrap_timeout_ms=300).metadata()
    assert time.monotonic() - started < 30
    text = str(raised.value)
    assert "\n" not in text
    assert all(f"127.0.0.1:{port} (Connection refused)" in text for port in ports)
    assert "check bootstrap.servers" in text
    assert raised.value.code is ErrorCode.BROKER_NOT_AVAILABLE


def test_an_address_without_a_broker_is_passed_over(fake):
    servers = f"127.0.0.1:{refused_port()},{fake.bootstrap_servers}"
    for _ in range(5):
        with Cluster(servers) as cluster:
            assert len(cluster.metadata([]).brokers) == 3


def test_a_bootstrap_broker_that_comes_up_a_little_later_is_found(fake):
    port = fake.stop_broker(1)
    for broker_id in (2, 3):
        fake.stop_broker(broker_id)
    threading.Timer(0.3, fake.start_broker, (1, port)).start()
    with Cluster(f"127.0.0.1:{port}", bootstrap_timeout_ms=5000) as cluster:
        assert list(cluster.metadata([]).brokers) == [1]


def test_connections_are_used_again(fake, cluster):
    fake.add_topic("t", [1])
    for _ in range(20):
        cluster.metadata()
        cluster.list_offsets({T0: LATEST})
    assert fake.count("ApiVersions") <= 2


def test_a_connection_that_the_broker_has_closed_meanwhile_is_replaced(fake, cluster):
    cluster.metadata()
    for broker_id in (1, 2, 3):
        fake.start_broker(broker_id, fake.stop_broker(broker_id))
    assert len(cluster.request(1, METADATA, MetadataRequest(topics=[])).brokers) == 3


def test_a_forked_child_opens_its_own_connections(fake, cluster):
    fake.add_topic("t", [1])
    cluster.metadata()
    assert forked(lambda: list(cluster.metadata().topics) == ["t"])
    assert list(cluster.metadata().topics) == ["t"]


def test_a_broker_that_did_not_answer_is_asked_last(fake):
    hangs = (1, "Metadata")
    fake.fault = lambda asked: Fault.SILENCE if (asked.broker_id, asked.api) == hangs else None
    with Cluster(fake.bootstrap_servers, request_timeout_ms=200) as cluster:
        for _ in range(20):
            cluster.refresh([], Deadline.after(30_000))
            # Else an open connection is used again.
            cluster.close()
    asked = [each.broker_id for each in fake.asked if each.api == "Metadata"]
    assert asked.count(1) <= 1
