"""A user without rights floods all brokers with long orders that only a controller may send, while
a leader is killed: the orders are not even decoded, and the others elect a new leader."""

import contextlib
import signal
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Message, Producer

from integration_tests.security.secured_cluster import SECRET, SecuredCluster, secured_cluster
from storage_engine.client import Admin, NewTopic
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.security.client_sockets import ClientSockets
from storage_engine.client.security.security_settings import security_of
from storage_engine.core.errors import ErrorCode
from storage_engine.net.deadline import Deadline
from storage_engine.net.limits import BufferPool
from storage_engine.protocol.apis import update_metadata
from storage_engine.protocol.framing import parse_response

AUTHORIZER = {"authorizer.class.name": "AclAuthorizer", "super.users": "User:ANONYMOUS"}
ORDER_BYTES = 8 << 20
CONNECTIONS_EACH = 4
LIMIT_MS = 120_000


class Flood:
    """Orders by several connections to each broker, one after another. Their bodies are no orders:
    a broker that decoded one would close the connection."""

    def __init__(self, cluster: SecuredCluster, brokers: list[int]) -> None:
        spec = update_metadata.API
        head = spec.key.to_bytes(2) + bytes(2) + (7).to_bytes(4) + (1).to_bytes(2) + b"x"
        size = (len(head) + ORDER_BYTES).to_bytes(4)
        self._frame = size + head + b"\xff" * ORDER_BYTES
        self._stop = threading.Event()
        self.codes: list[int] = []
        self.broken: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(self._connect(cluster, broker),))
            for broker in brokers
            for _ in range(CONNECTIONS_EACH)
        ]

    def _connect(self, cluster: SecuredCluster, broker: int) -> BrokerConnection:
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "bob",
            "sasl.password": SECRET,
        }
        return BrokerConnection.open(
            ("127.0.0.1", cluster.brokers.port(broker, "SASL")),
            "flood",
            Deadline.after(LIMIT_MS),
            BufferPool(),
            ClientSockets(security_of(settings)),
        )

    def _run(self, connection: BrokerConnection) -> None:
        deadline = Deadline.after(LIMIT_MS)
        try:
            while not self._stop.is_set():
                connection.socket.send([self._frame], deadline)
                answer = connection.socket.receive(deadline)
                self.codes.append(parse_response(update_metadata.API, 0, answer).error_code)
        except Exception as error:  # noqa: BLE001 - asserted by the test
            self.broken.append(str(error))
        finally:
            connection.close()

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path_factory.mktemp("posing"), brokers=3, more=AUTHORIZER) as made:
        with Admin({"bootstrap.servers": made.brokers.bootstrap("OPEN")}) as admin:
            admin.create_topics([NewTopic(name="many", partitions=60, replication_factor=3)])
        yield made


def write_to_all(cluster: SecuredCluster) -> int:
    """How many partitions have taken a record."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.brokers.bootstrap("OPEN"),
            "acks": "all",
            "message.timeout.ms": str(LIMIT_MS),
        }
    )
    taken: set[int] = set()

    def on_delivery(error: object, message: Message) -> None:
        if error is None:
            taken.add(message.partition())

    for partition in range(60):
        producer.produce("many", b"x", partition=partition, on_delivery=on_delivery)
    producer.flush(LIMIT_MS / 1000)
    return len(taken)


def test_orders_of_a_stranger_hold_up_no_failover(cluster: SecuredCluster) -> None:
    assert write_to_all(cluster) == 60
    flood = Flood(cluster, brokers=[1, 2])
    with flood.going_on():
        cluster.brokers.stop(3, signum=signal.SIGKILL)
        assert write_to_all(cluster) == 60
    # Each was answered, which none is that was looked at.
    assert flood.broken == []
    assert set(flood.codes) == {int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)}
