"""A broker that may have few files open, and a crowd of idle connections: it serves those that it
let in, and everybody once the crowd is gone, without a restart."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from integration_tests.support.cluster_support import wait_until
from integration_tests.support.command_line import (
    COMMAND,
    ROOT,
    TIMEOUT_S,
    cluster_json,
    succeed,
)
from storage_engine.client import Producer
from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import TopicPartition

OPEN_FILES = 300
IDLE = 280
TP = TopicPartition("t", 0)


@contextlib.contextmanager
def broker_with_few_files(directory: Path) -> Iterator[str]:
    """Its address. A broker raises its own soft limit, so that the hard one is lowered, too."""
    limited = ["sh", "-c", f'ulimit -n {OPEN_FILES} && exec "$@"', "sh"]
    up = ["up", "--no-console", "--dir", directory, "--brokers", "1", "--port", "0", "--detach"]
    subprocess.run(
        [*limited, *COMMAND, *map(str, up)],
        check=True, capture_output=True, cwd=ROOT, timeout=TIMEOUT_S,
    )  # fmt: skip
    try:
        yield cluster_json(directory)["bootstrap_servers"]
    finally:
        succeed("down", "--dir", directory)


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
    directory = tmp_path / "one"
    with broker_with_few_files(directory) as address:
        succeed(
            *("topics", "create", "t", "--bootstrap-server", address, "--partitions", 1),
            *("--replication-factor", 1, "--config", "segment.bytes=1048576"),
        )
        with Producer({"bootstrap.servers": address}) as producer:
            write(producer, 5)
            idle = crowd(address)
            try:
                wait_until(lambda: open_among(idle) < 150, "some of the crowd are closed")
                time.sleep(0.5)
                let_in = open_among(idle)
                assert 50 < let_in < 150
                # Each MiB takes a new segment with its files.
                write(producer, 200)
            finally:
                for connection in idle:
                    connection.close()
        with Producer({"bootstrap.servers": address}) as another:
            write(another, 100)
        assert Cluster(address).list_offsets({TP: -1})[TP] == 305
        text = (directory / "broker-1" / "broker.log").read_text()
        assert "max.connections=" in text
        assert text.count("connection closed reason=there are max.connections") == 1
        assert "offline" not in text
