"""Fixtures of the integration tests."""

import contextlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from integration_tests.support.cluster_support import running_cluster
from integration_tests.support.loop_disk import LoopDisk


def pytest_configure() -> None:
    """A run that is told to stop ends as at Ctrl-C, so that its clusters are taken down."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three brokers for the tests of one file; each test makes topics of its own."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def disk(tmp_path) -> Iterator[LoopDisk]:
    try:
        made = LoopDisk(tmp_path / "image", tmp_path / "second")
        made.mount()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this user can't mount an ext4 image here: {error}")
    yield made
    with contextlib.suppress(subprocess.CalledProcessError):
        made.unmount()
