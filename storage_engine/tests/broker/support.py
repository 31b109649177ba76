"""Simulated brokers for tests, and what these ask them for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.security.principal import Principal


class QuietConnection:
    """What requests need of a client's connection; counts its holds, and keeps how it ended."""

    principal, peer_host, number = Principal("alice"), "10.0.0.7", 1

    def __init__(self) -> None:
        self.holds = 0
        self.failures: list[Exception] = []
        self.closed_for: list[str] = []

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1

    def request_failed(self, error: Exception) -> None:
        self.failures.append(error)

    def close(self, reason: str) -> None:
        self.closed_for.append(reason)


def code_of(answer) -> ErrorCode:
    """The code of the first partition."""
    return ErrorCode.of(answer.partitions[0].error_code)


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    """The client's call is answered with this code."""
    with pytest.raises(KafkaError) as failure:
        yield
    assert failure.value.code is code


def disk_of(cluster: SimulatedCluster, broker: int = 1) -> SimulatedDisk:
    disk = cluster[broker].disk
    assert isinstance(disk, SimulatedDisk)
    return disk


def log_dir_of(cluster: SimulatedCluster, broker: int, tp: TopicPartition) -> Path:
    return cluster[broker].logs.logs[tp].directory.parent


def cluster_fixture(
    *topics: str,
    brokers: int = 3,
    prepare: Callable[[SimulatedCluster], object] | None = None,
    has_record: bool = False,
    simulated_disk: bool = False,
    **settings: Any,
) -> Any:
    """A fixture: a cluster with these topics. `has_record`: the first one has a record, and all
    replicas have it. `prepare` does more with it; `settings` are those of SimulatedCluster."""

    @pytest.fixture
    def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
        if simulated_disk:
            settings["disk"] = lambda _broker: SimulatedDisk(tmp_path)
        made = SimulatedCluster(tmp_path, brokers, **settings)
        for topic in topics:
            assert made.create_topic(topic).error_code == 0
        if has_record:
            first = TopicPartition(topics[0], 0)
            assert made.produced(first, b"first") == 0
            made.wait_in_sync(first, *range(1, brokers + 1))
        if prepare is not None:
            prepare(made)
        yield made
        made.close()

    return cluster
