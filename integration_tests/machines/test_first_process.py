"""A broker that is the first process of its namespace, as in a container: when it ends, the kernel
ends all others there. Its session lives a minute, so that nobody but its watcher can have ended it.
"""

import os
import signal
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from benchmarks.machines.machine_cluster import MachineCluster
from integration_tests.machines.on_machines import cluster_on_machines
from integration_tests.support.cluster_support import wait_until

SESSION_S = 60
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
PROGRAM = b"storage_engine.tools.cli"
KILLED = 128 + signal.SIGKILL


@pytest.fixture
def contained(tmp_path):
    """A broker in a namespace of its own, and a ZooKeeper on another machine."""
    settings = {"zookeeper.session.timeout.ms": str(SESSION_S * 1000)}
    with cluster_on_machines(tmp_path, settings, brokers=(), zookeepers=(2,)) as cluster:
        cluster.start_broker(1, within=CONTAINER)
        yield cluster


def processes(cluster: MachineCluster) -> dict[int, int]:
    """The broker and what started it: number in their own namespace -> number here."""
    container = Path(f"/proc/{cluster.broker(1).pid}/task/{cluster.broker(1).pid}/children")
    (first,) = map(int, container.read_text().split())
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    brokers = [
        pid for pid in map(int, children) if PROGRAM in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return {number_in_its_namespace(pid): pid for pid in (first, *brokers)}


def number_in_its_namespace(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("NSpid:")[2].split("\n")[0].split()[-1])


def is_registered(cluster: MachineCluster) -> bool:
    zookeeper = KazooClient(cluster.connect)
    zookeeper.start()
    try:
        return zookeeper.exists("/brokers/ids/1") is not None
    finally:
        zookeeper.stop()
        zookeeper.close()


def test_its_session_is_closed_when_it_is_killed(contained):
    first, broker = sorted(processes(contained))
    assert first == 1
    os.kill(processes(contained)[broker], signal.SIGKILL)
    wait_until(
        lambda: not is_registered(contained), "its session is closed", timeout_s=SESSION_S * 0.75
    )
    assert contained.broker(1).wait() == KILLED
    assert " was closed " in contained.log(1)


def test_it_stops_in_order_when_the_first_process_is_told_to(contained):
    os.kill(processes(contained)[1], signal.SIGTERM)
    assert contained.broker(1).wait() == 0
    assert not is_registered(contained)
    assert "broker 1 stopped" in contained.log(1)
    assert " was closed " not in contained.log(1)
