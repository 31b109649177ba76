"""A cluster of three simulated brokers, as most tests of brokers want it, and what breaks it."""

from collections.abc import Callable
from typing import Any

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker import unexpected
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.broken import Raised
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


@pytest.fixture
def raised(monkeypatch, caplog) -> Raised:
    """Brokers survive what nobody foresaw, as in production."""
    monkeypatch.setattr(unexpected, "is_fatal", False)
    return Raised(caplog)


@pytest.fixture
def break_it(monkeypatch, raised) -> Callable[..., None]:
    """Have a function raise `most` times, where `when` holds for its arguments."""

    def patch(owner: Any, name: str, *, most: int = 1, when: Any = None) -> None:
        monkeypatch.setattr(owner, name, raised.times(getattr(owner, name), most, when))

    return patch
