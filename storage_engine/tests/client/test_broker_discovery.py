"""A producer that is told where ZooKeeper is finds brokers there, whoever has left and whatever
else lies below /brokers/ids (R-CLI1).
"""

import json
import logging
import socket

import pytest
from kazoo.client import KazooClient

from storage_engine.client.broker_discovery import ZooKeeperBrokers
from storage_engine.client.producer.producer import Producer
from storage_engine.core.errors import DeadlineExceededError, HeadraceError
from storage_engine.net.deadline import Deadline
from storage_engine.tests.client.fake_cluster import FakeCluster
from storage_engine.zookeeper.connect_string import ConnectString
from storage_engine.zookeeper.embedded import EmbeddedZooKeeper, start_embedded
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode

GARBAGE = {
    "no number": b"{}",
    "-1": b"{}",
    "9" * 40: b"{}",
    "7": b"",
    "8": b"not json",
    "9": b"[]",
    "10": b'{"host": "h", "port": "p"}',
    "11": b'{"host": "h", "port": 0}',
    "12": b'{"host": "h", "port": 70000}',
    "13": b'{"host": "", "port": 9092}',
    "14": json.dumps({"port": 9092}).encode(),
    "15": b"\xff" * 100,
}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    server = start_embedded(tmp_path_factory.mktemp("zookeeper"), unsafe_no_fsync=True)
    yield server
    server.stop()


class Registered:
    """A fake cluster, and what ZooKeeper says of it."""

    def __init__(self, zookeeper: EmbeddedZooKeeper, chroot: str) -> None:
        self.connect = zookeeper.connect + chroot
        self.client = KazooClient(zookeeper.connect)
        self.client.start(10)
        self.client.ensure_path(chroot + BrokerIdZNode.PARENT)
        self._chroot = chroot
        self.fake = FakeCluster()
        self.fake.add_topic("t", [1])
        for broker_id, server in self.fake.servers.items():
            self.register(broker_id, server.port)

    def register(self, broker_id, port):
        node = BrokerIdZNode(broker_id=broker_id, host="127.0.0.1", port=port)
        self.put(str(broker_id), node.encode())

    def put(self, name, data):
        path = f"{self._chroot}{BrokerIdZNode.PARENT}/{name}"
        if self.client.exists(path):
            self.client.set(path, data)
        else:
            self.client.create(path, data)

    def remove(self, broker_id):
        self.client.delete(f"{self._chroot}{BrokerIdZNode.path(broker_id)}")

    def producer(self, **settings):
        given = {key.replace("_", "."): value for key, value in settings.items()}
        return Producer({"zookeeper.connect": self.connect, "linger.ms": 0, **given})

    def close(self):
        self.fake.close()
        self.client.stop()
        self.client.close()


@pytest.fixture
def registered(zookeeper, request):
    made = Registered(zookeeper, "/" + request.node.name)
    yield made
    made.close()


def test_a_producer_writes_to_brokers_that_zookeeper_names_among_garbage(registered, caplog):
    for name, data in GARBAGE.items():
        registered.put(name, data)
    with caplog.at_level(logging.WARNING), registered.producer() as producer:
        assert producer.send("t", b"x").result(20).offset == 0
    told = [line for line in caplog.messages if line.startswith("ignored what is no broker")]
    assert len(told) == len(GARBAGE)
    assert all("\n" not in line for line in told)


def test_a_producer_finds_others_when_those_that_it_found_first_are_gone(registered):
    fake = registered.fake
    with registered.producer() as producer:
        producer.send("t", b"x").result(20)
        for broker_id in (1, 2, 3):
            fake.stop_broker(broker_id)
        # The dead one is registered for as long as its session lasts.
        registered.remove(2)
        registered.remove(3)
        fake.start_broker(4)
        registered.register(4, fake.servers[4].port)
        fake.move_leader("t", 0, 4)
        assert producer.send("t", b"y").result(20).offset == 1


def test_no_broker_in_zookeeper_is_one_line_that_says_so(registered):
    for broker_id in (1, 2, 3):
        registered.remove(broker_id)
    with (
        registered.producer(max_block_ms=500, delivery_timeout_ms=500) as producer,
        pytest.raises(HeadraceError, match="no broker is registered in ZooKeeper at"),
    ):
        producer.send("t", b"x")


def test_a_chroot_that_does_not_exist_has_no_brokers(zookeeper):
    nowhere = ConnectString.parse(zookeeper.connect + "/nowhere")
    with pytest.raises(HeadraceError, match="no broker is registered"):
        ZooKeeperBrokers(nowhere, timeout_ms=5_000).addresses(Deadline.after(5_000))


def test_a_zookeeper_that_does_not_answer_is_one_line(unused_tcp_port_of_nobody):
    connect = ConnectString.parse(f"127.0.0.1:{unused_tcp_port_of_nobody}")
    with pytest.raises(DeadlineExceededError, match=f"^ZooKeeper at {connect} does not answer"):
        ZooKeeperBrokers(connect, timeout_ms=300).addresses(Deadline.after(5_000))


@pytest.fixture
def unused_tcp_port_of_nobody():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]
