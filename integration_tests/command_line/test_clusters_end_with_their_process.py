"""A cluster for one block of code is gone when the process of that block is, however it ended."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from integration_tests.forks.forked import popen
from integration_tests.support.cluster_support import wait_until
from integration_tests.support.command_line import (
    COMMAND,
    ROOT,
    cluster_json,
    processes_of,
)
from integration_tests.support.left_behind import check_nothing_is_left
from storage_engine.tests.sampling import in_full

_BLOCK = """
import sys
from pathlib import Path
from storage_engine.tools.local.cluster_plan import UpRequest
from storage_engine.tools.local.local_cluster import LocalCluster
with LocalCluster.running(Path(sys.argv[1]), UpRequest(brokers=1, port=0)):
    print("up", flush=True)
    input()
"""


def block(directory: Path, program: str = _BLOCK) -> "subprocess.Popen[str]":
    return popen(
        [sys.executable, "-c", program, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_a_cluster_is_stopped_when_its_process_is_killed(tmp_path):
    directory = tmp_path / "cluster"
    with block(directory) as process:
        assert process.stdout.readline() == "up\n"
        assert len(processes_of(directory)) == 3  # the block itself, ZooKeeper, the broker
        process.kill()
    wait_until(lambda: processes_of(directory) == [], "the cluster is gone")
    assert (directory / "broker-1" / "data" / ".clean-shutdown").exists()

    def is_noted() -> bool:
        cluster = cluster_json(directory)
        return (cluster["zookeeper_pid"], cluster["brokers"][0]["pid"]) == (None, None)

    # By whoever has stopped them, a moment after the last one has ended.
    wait_until(is_noted, "the cluster's file says so")


def test_the_guard_ends_with_a_block_that_ends(tmp_path):
    directory = tmp_path / "cluster"
    with block(directory) as process:
        assert process.stdout.readline() == "up\n"
        process.communicate("\n", timeout=60)
    assert process.returncode == 0
    assert processes_of(directory) == []


@pytest.mark.parametrize("ending", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=in_full)])
def test_a_benchmark_that_is_told_to_end_takes_its_cluster_and_folder_with_it(tmp_path, ending):
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    with subprocess.Popen(
        [*COMMAND, "bench", "replication"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folder)},
        cwd=ROOT,
    ) as process:
        wait_until(lambda: len(processes_of(folder)) > 1, "ZooKeeper and a broker run")
        process.send_signal(ending)
        process.wait(60)
    assert process.returncode == 130
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


_LEFT = """
import sys
from pathlib import Path
from integration_tests.support.left_behind import ended_with_us
from storage_engine.zookeeper.embedded import start_embedded
with ended_with_us(Path(sys.argv[1]), patience_s=0.1):
    start_embedded(Path(sys.argv[1]) / "zookeeper", unsafe_no_fsync=True)
    print("up", flush=True)
    input()
"""


def test_what_a_test_has_started_itself_ends_with_its_process(tmp_path):
    """ZooKeeper without a cluster, and so without a cluster's guard."""
    folder = tmp_path / "killed"
    with block(folder, _LEFT) as process:
        assert process.stdout.readline() == "up\n"
        with pytest.raises(AssertionError, match="left behind"):
            check_nothing_is_left(folder, timeout_s=0)
        process.kill()
    check_nothing_is_left(folder)
