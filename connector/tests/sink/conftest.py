"""A cluster that keeps what is appended to it."""

import pytest

from connector.sink import record_writer, topic_limits
from connector.tests.sink.written_records import LIMIT, FakeCluster, FakeWriter


@pytest.fixture
def cluster(monkeypatch):
    fake = FakeCluster()
    monkeypatch.setattr(record_writer, "cluster_for", lambda options: fake)
    monkeypatch.setattr(record_writer, "BatchWriter", FakeWriter)
    monkeypatch.setattr(topic_limits, "_limits", {})
    fake.limit = LIMIT
    monkeypatch.setattr(topic_limits, "_ask_limit", lambda cluster, topic: cluster.limit)
    return fake
