"""All processes of a local cluster are stopped, whatever goes wrong with one of them or with the
disk."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from storage_engine.tools.local import cluster_file, local_cluster
from storage_engine.tools.local.broker_process import BrokerProcess
from storage_engine.tools.local.cluster_file import BrokerEntry, ClusterFile, ConsoleEntry
from storage_engine.tools.local.console_process import ConsoleProcess
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.local.processes import StopOutcome

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Machine:
    """Processes that only a test knows, by pid."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running = {11, 12, 5, 7}
        self.stuck: set[int] = set()
        brokers = [
            replace(BrokerEntry.for_id(n, "127.0.0.1", 9000 + n), pid=10 + n) for n in (1, 2)
        ]
        self.cluster = LocalCluster(directory)
        console = ConsoleEntry(url="http://c", port=9100, pid=7, progress_token_file=None)
        cluster_file.write(
            directory,
            ClusterFile(
                zookeeper="127.0.0.1:2181",
                zookeeper_pid=5,
                zookeeper_dir="zookeeper",
                brokers=tuple(brokers),
                console=console,
            ),
        )
        zookeeper = mock.Mock(pid=5, stop=lambda: self._end(5))
        monkeypatch.setattr(
            local_cluster,
            "attach_embedded",
            lambda _directory: zookeeper if 5 in self.running else None,
        )
        monkeypatch.setattr(BrokerProcess, "find", lambda each: self._pid(each._entry.id))
        monkeypatch.setattr(
            BrokerProcess, "stop", lambda each, timeout_s: self._end(10 + each._entry.id)
        )
        monkeypatch.setattr(
            ConsoleProcess, "find", lambda _self, _entry: 7 if 7 in self.running else None
        )
        monkeypatch.setattr(ConsoleProcess, "stop", lambda _self, _entry: self._end(7))

    def _pid(self, broker_id: int) -> int | None:
        return 10 + broker_id if 10 + broker_id in self.running else None

    def _end(self, pid: int) -> StopOutcome:
        if pid in self.stuck:
            raise TimeoutError(f"process {pid} still runs")
        self.running.discard(pid)
        return StopOutcome.STOPPED


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_full_disk_keeps_nothing_running_and_is_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_file, "write", mock.Mock(side_effect=FULL))
    with pytest.raises(OSError, match="No space left"):
        machine.cluster.down()
    assert machine.running == set()


def test_a_broker_that_can_not_be_killed_keeps_no_other_process_running(machine: Machine) -> None:
    machine.stuck = {11}
    with pytest.raises(TimeoutError, match="process 11 still runs"):
        machine.cluster.down()
    assert machine.running == {11}
    assert [entry.pid for entry in machine.cluster.state.brokers] == [11, None]
