"""Clusters whose replicas are moved."""

from collections.abc import Iterator

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.tests.tools.placement.moved_replicas import MovedReplicas


@pytest.fixture
def moved() -> Iterator[MovedReplicas]:
    moved = MovedReplicas()
    yield moved
    moved.close()


@pytest.fixture
def cluster(moved: MovedReplicas) -> Iterator[Cluster]:
    with Cluster(moved.bootstrap_servers) as cluster:
        yield cluster
