"""Three brokers with an authorizer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.tests.broker.guards.guarded_cluster import guarded_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
    made = guarded_cluster(tmp_path, 3)
    yield made
    made.close()
