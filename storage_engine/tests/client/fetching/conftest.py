"""A topic with a schema on the fake cluster."""

import pytest

from storage_engine.tests.client.fake_cluster import FakeCluster
from storage_engine.tests.client.support.typed_topics import (
    BATCHES,
    add_typed_topic,
    append_numbered,
)


@pytest.fixture
def typed(fake: FakeCluster) -> FakeCluster:
    """Topic t: a partition, led by broker 1, whose batches have 10 rows each."""
    add_typed_topic(fake, "t", [1])
    append_numbered(fake, "t", BATCHES)
    return fake
