"""Fixtures of the integration tests."""

import contextlib
import signal
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from integration_tests.forks import forked
from integration_tests.support.cluster_support import (
    SHARED_SETTINGS,
    WholeCluster,
    running_cluster,
    sharing_zookeeper,
)
from integration_tests.support.left_clients import free_left_clients
from integration_tests.support.loop_disk import LoopDisk
from storage_engine.tools.local import broker_process


def pytest_configure() -> None:
    """A run that is told to stop ends as at Ctrl-C, so that its clusters are taken down."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def _no_client_outlives_its_file() -> Iterator[None]:
    yield
    free_left_clients()


@pytest.fixture(scope="session", autouse=True)
def _brokers_are_forked() -> Iterator[None]:
    """Those of the clusters that this process starts."""
    with pytest.MonkeyPatch.context() as patch:
        if forked.IS_ON:
            patch.setattr(broker_process, "spawn_detached", forked.spawn_detached)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_zookeeper(tmp_path_factory) -> Iterator[None]:
    """Of all clusters whose tests do it no harm."""
    with sharing_zookeeper(tmp_path_factory.mktemp("zookeeper")):
        yield


@pytest.fixture(scope="session")
def _shared(tmp_path_factory, _one_zookeeper):
    with running_cluster(tmp_path_factory.mktemp("shared"), settings=SHARED_SETTINGS) as running:
        yield running, WholeCluster(running)


@pytest.fixture(scope="module")
def cluster(_shared):
    """Three brokers for the tests of many files, since their start costs three seconds of
    processor time. Names of topics and groups are each test's own, and who kills a broker starts it
    again. A file that changes more than that has a cluster to itself. Each begins with all replicas
    in sync, whatever the one before has done."""
    shared, whole = _shared
    yield shared
    whole.restore()


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


@pytest.fixture(scope="module")
def spark_cluster(cluster):
    """Three brokers that other files use, too."""
    return cluster


@pytest.fixture
def servers(spark_cluster):
    return spark_cluster.bootstrap_servers


@pytest.fixture
def topic():
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
