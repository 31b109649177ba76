"""Fixtures of the integration tests."""

import pytest

from integration_tests.cluster_support import running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three brokers for the tests of one file; each test makes topics of its own."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
