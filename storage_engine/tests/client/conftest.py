"""A fake cluster, and a client of it that is impatient."""

from collections.abc import Iterator

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.tests.client.fake_cluster import FakeCluster


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    fake = FakeCluster()
    yield fake
    fake.close()


@pytest.fixture
def cluster(fake: FakeCluster) -> Iterator[Cluster]:
    with Cluster(
        fake.bootstrap_servers,
        request_timeout_ms=2000,
        deadline_ms=5000,
        bootstrap_timeout_ms=5000,
        unknown_topic_wait_ms=300,
    ) as cluster:
        yield cluster
