"""A console without a cluster; brokers without disk; and a look at what is left behind."""

import threading
from collections.abc import Iterator

import pytest

from headrace_console.console_settings import ConsoleSettings
from headrace_console.tests.console_support import NOWHERE, running_console, within
from storage_engine.client.cluster import Cluster
from storage_engine.tests.client.fake_cluster import FakeCluster


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a console behind which is no cluster."""
    with running_console(ConsoleSettings(bootstrap_servers=NOWHERE, port=0)) as address:
        yield address


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    fake = FakeCluster()
    yield fake
    fake.close()


@pytest.fixture
def cluster(fake: FakeCluster) -> Iterator[Cluster]:
    """An impatient client of it."""
    with Cluster(
        fake.bootstrap_servers,
        request_timeout_ms=2000,
        deadline_ms=5000,
        bootstrap_timeout_ms=5000,
        unknown_topic_wait_ms=300,
    ) as cluster:
        yield cluster


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    """No thread of a console that the test has started."""
    before = set(threading.enumerate())

    def left() -> list[str]:
        names = [each.name for each in threading.enumerate() if each not in before]
        return [name for name in names if name.startswith("console-")]

    yield
    within(60, lambda: not left(), "the end of the console's threads")
