"""A broker that may have few files open, and a crowd of idle connections: it serves those that it
let in, and everybody once the crowd is gone, without a restart."""

import contextlib
import resource
import socket
import time
from collections.abc import Iterator

from integration_tests.cluster_support import create_topic, running_cluster, wait_until
from storage_engine.client import Producer
from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import TopicPartition

OPEN_FILES = 300
IDLE = 280
TP = TopicPartition("t", 0)


@contextlib.contextmanager
def few_open_files() -> Iterator[None]:
    """For the processes that are started within."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def crowd(address: str) -> list[socket.socket]:
    host, port = address.rsplit(":", 1)
    return [socket.create_connection((host, int(port)), timeout=10) for _ in range(IDLE)]


def open_among(connections: list[socket.socket]) -> int:
    """How many the broker has not closed."""
    count = 0
    for connection in connections:
        connection.settimeout(0)
        try:
            closed = connection.recv(1) == b""
        except BlockingIOError:
            closed = False
        except OSError:
            closed = True
        count += not closed
    return count


def write(producer: Producer, count: int, size: int = 20_000) -> None:
    futures = [producer.send("t", bytes(size)) for _ in range(count)]
    producer.flush()
    for future in futures:
        future.result(30)


def test_idle_connections_take_no_descriptors_of_the_logs(tmp_path):
    with (
        few_open_files(),
        running_cluster(tmp_path, 1, settings=(("default.replication.factor", "1"),)) as cluster,
    ):
        address = cluster.bootstrap_servers
        create_topic(address, "t", partitions=1, replication_factor=1,
                     config={"segment.bytes": "1048576"})  # fmt: skip
        broker = cluster.state.brokers[0]
        assert broker.pid is not None
        with Producer(bootstrap_servers=address) as producer:
            write(producer, 5)
            idle = crowd(address)
            try:
                wait_until(lambda: open_among(idle) < IDLE, 10, "the crowd is let in")
                time.sleep(0.5)
                let_in = open_among(idle)
                assert 50 < let_in < 150
                # Each MiB takes a new segment with its files.
                write(producer, 200)
            finally:
                for connection in idle:
                    connection.close()
        with Producer(bootstrap_servers=address) as another:
            write(another, 100)
        assert Cluster(address).list_offsets({TP: -1})[TP] == 305
        text = (tmp_path / "broker-1" / "broker.log").read_text()
        assert "max.connections=" in text
        assert text.count("connection closed reason=there are max.connections") == 1
        assert "offline" not in text
        assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[0] == OPEN_FILES
