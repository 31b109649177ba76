"""Fixtures of the tests of the simulation."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from simulation.simulate import workers
from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.sampling import ALL_FAULTS


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """A process for the seeds of a file, two in full: loading the simulation takes longer than most
    seeds."""
    with workers(2 if ALL_FAULTS else 1) as process:
        yield process


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    """Three replicas in sync of a topic `t` with one record, on a disk each; no leader is moved by
    itself."""
    tp = TopicPartition("t", 0)
    made = SimulatedCluster(
        tmp_path,
        disk=lambda broker: SimulatedDisk(tmp_path / f"broker{broker}"),
        auto_leader_rebalance_enable="false",
    )
    assert made.create_topic("t").error_code == 0
    assert made.produced(tp, b"first") == 0
    made.wait_in_sync(tp, 1, 2, 3)
    yield made
    made.close()
