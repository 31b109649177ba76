"""A cluster that is taken down with the process that it was started for, however that ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_engine.tests.tools.local.made_cluster import stopped_cluster
from storage_engine.tools.local.broker_process import environment_of_child
from storage_engine.tools.local.processes import is_running, kill_process, spawn_detached

PROGRAM = """
import pathlib, sys
from storage_engine.tools.local.cluster_guard import taken_down_with_us
with taken_down_with_us(pathlib.Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Pid and mark of a process that stands for a broker of the cluster in `tmp_path`."""
    cluster = stopped_cluster(tmp_path)
    mark = ("broker", str(tmp_path / cluster.brokers[0].config))
    command = [sys.executable, "-c", "import time; time.sleep(600)", *mark]
    pid = spawn_detached(command, cwd=tmp_path, output=tmp_path / "output")
    yield pid, mark
    kill_process(pid, mark)


def begun(directory: Path) -> "subprocess.Popen[str]":
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment_of_child(),
    )
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    return program


def test_brokers_end_when_their_process_is_killed(tmp_path: Path, broker) -> None:
    with begun(tmp_path) as program:
        os.kill(program.pid, signal.SIGKILL)
    deadline_s = time.monotonic() + 60
    while is_running(*broker):
        assert time.monotonic() < deadline_s, "the broker goes on"
        time.sleep(0.05)


def test_a_block_that_ends_by_itself_leaves_the_cluster_to_its_caller(tmp_path: Path, broker):
    with begun(tmp_path) as program:
        program.communicate("\n", timeout=60)
    assert program.returncode == 0, "the guard has ended, too"
    assert is_running(*broker)
