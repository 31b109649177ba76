"""A cluster of three simulated brokers, as most tests of brokers want it."""

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture

cluster = cluster_fixture()


@pytest.fixture
def topic(cluster) -> SimulatedCluster:
    """The cluster with a topic `t`: one partition, three replicas in sync and one record."""
    tp = TopicPartition("t", 0)
    assert cluster.create_topic("t").error_code == 0
    assert cluster.produced(tp, b"first") == 0
    cluster.wait_in_sync(tp, 1, 2, 3)
    return cluster
