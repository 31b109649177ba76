"""Brokers without disk, which the commands ask over real sockets."""

from collections.abc import Iterator

import pytest

from storage_engine.tests.client.fake_cluster import FakeCluster


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    fake = FakeCluster()
    yield fake
    fake.close()
