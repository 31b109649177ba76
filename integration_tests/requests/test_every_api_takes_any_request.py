"""Every API in every version that is served, with random requests and damaged ones, on a
real broker: each gets an answer or costs its own connection, and nothing else."""

import dataclasses
import os
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given, settings

from integration_tests.support.cluster_support import create_topic, running_cluster
from storage_engine.protocol.apis.registry import SERVED_RANGES, name_of, spec_for
from storage_engine.tests.protocol.apis import kio_messages
from storage_engine.tests.sampling import ALL_FAULTS, SEED
from storage_engine.tools.local.local_cluster import LocalCluster

BYSTANDER = "unharmed"
TARGET = "meant"
WORDS = (TARGET, "", "a-group", "1", "cleanup.policy", "compact", "range", "consumer", "no such")
NUMBERS = (-1, 0, 1, 2, 3, 100)
REQUESTS = 40 if ALL_FAULTS else 6
SHARE = 1 if ALL_FAULTS else 3
"""One in so many versions of each API, by the seed, and always the newest."""
SILENCE_S = 1.0
GROWTH_MIB = 60
"""Far below what a request that is believed in its sizes would take."""


def versions(key: int) -> list[int]:
    every = kio_messages.versions_in_kio(spec_for(key))
    return [v for v in every if v == every[-1] or (v + SEED) % SHARE == 0]


CASES = [
    pytest.param(key, version, id=f"{name_of(key)}-{version}")
    for key in SERVED_RANGES
    for version in versions(key)
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), brokers=1) as made:
        for topic in (BYSTANDER, TARGET):
            create_topic(made, topic, replication_factor=1)
        load_coordinators(made)
        yield made


def load_coordinators(cluster: LocalCluster) -> None:
    """A broker loads what they need with their first request: no growth by the requests below."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    producer = Producer({**servers, "transactional.id": "first"})
    producer.init_transactions(60)
    consumer = Consumer({**servers, "group.id": "first"})
    consumer.commit(offsets=[TopicPartition(BYSTANDER, 0, 0)], asynchronous=False)
    consumer.close()


def tame(value: Any, choices: random.Random) -> Any:
    """The same message with more values that mean something: others end at the first check."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: tame(getattr(value, field.name), choices)
            for field in dataclasses.fields(value)
            if field.init
        }
        return dataclasses.replace(value, **changed)
    if isinstance(value, tuple):
        return tuple(tame(item, choices) for item in value)
    if choices.random() < 0.3:
        return value
    if isinstance(value, str):
        return choices.choice(WORDS)
    if type(value) is int and -(2**7) <= (chosen := choices.choice(NUMBERS)) < 2**7:
        return chosen
    return value


def requests(key: int, version: int) -> list[bytes]:
    """Whole frames: random messages, messages that mean something, and damaged ones of both."""
    bodies: list[bytes] = []
    choices = random.Random(SEED)

    @settings(max_examples=REQUESTS, deadline=None, derandomize=True, database=None)
    @given(kio_messages.messages(kio_messages.kio_class(key, version, "request")))
    def collect(message: Any) -> None:
        for each in (message, tame(message, choices)):
            body = kio_messages.encode(each)
            bodies.append(body)
            damaged = bytearray(body)
            for _ in range(choices.randint(1, 3) if body else 0):
                damaged[choices.randrange(len(body))] = choices.choice((0, 1, 127, 128, 254, 255))
            bodies.append(bytes(damaged))

    collect()
    client = b"fuzz"
    tags = b"\x00" if spec_for(key).is_flexible(version) else b""
    frames = []
    for number, body in enumerate(bodies):
        head = struct.pack(">hhih", key, version, number, len(client)) + client + tags
        frames.append(struct.pack(">i", len(head) + len(body)) + head + body)
    return frames


def answered(cluster: LocalCluster, frame: bytes) -> bool:
    """False: it closed the connection, or waits for something; both without a word."""
    entry = cluster.state.broker(1)
    with socket.create_connection((entry.host, entry.port), timeout=30) as connection:
        connection.sendall(frame)
        connection.settimeout(SILENCE_S)
        try:
            head = connection.recv(8, socket.MSG_WAITALL)
        except (TimeoutError, ConnectionResetError):
            return False
    if not head:
        return False
    assert head[4:8] == frame[8:12], "another request was answered"
    return True


def resident_mib(cluster: LocalCluster) -> float:
    pid = cluster.state.broker(1).pid
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.fixture(scope="module")
def at_first(cluster: LocalCluster) -> float:
    """Memory in MiB, before any of the requests."""
    return resident_mib(cluster)


def log_lines(cluster: LocalCluster) -> list[str]:
    entry = cluster.state.broker(1)
    return (cluster.directory / entry.log_file).read_text().splitlines()


@pytest.mark.parametrize(("key", "version"), CASES)
def test_a_random_request_is_answered_or_closes_its_connection(cluster, at_first, key, version):
    before = cluster.state.broker(1).pid
    known = len(log_lines(cluster))
    count = sum(answered(cluster, frame) for frame in requests(key, version))
    assert count > 0, "no request was understood"
    told = log_lines(cluster)[known:]
    assert not [line for line in told if "ERROR" in line or "Traceback" in line]
    assert resident_mib(cluster) < at_first + GROWTH_MIB
    assert cluster.state.broker(1).pid == before


def test_afterwards_the_broker_serves_as_before(cluster):
    outcomes: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    producer.produce(BYSTANDER, b"still here", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    assert outcomes == [None]
