"""Fixtures of the tests of the connector against real brokers."""

from collections.abc import Iterator

import pytest

from connector.connections import close_all
from storage_engine.client.cluster import Cluster


@pytest.fixture
def no_wait_for_topics(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Else a client waits three seconds for each topic that does not exist, in case it was just
    made."""
    defaults = Cluster.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "unknown_topic_wait_ms", 300)
    close_all()
    yield
    close_all()
