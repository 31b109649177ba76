"""Fixtures of the integration tests."""

import signal

import pytest

from integration_tests.cluster_support import running_cluster


def pytest_configure() -> None:
    """A run that is told to stop ends as at Ctrl-C, so that its clusters are taken down."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three brokers for the tests of one file; each test makes topics of its own."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
