"""Instances of the lake as processes, and what tables have."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.beside_kafka.environment import ROOT
from benchmarks.beside_kafka.tethered import tethered
from benchmarks.support.brokers import Brokers
from storage_engine.client.admin.topics import alter_topic_configs, delete_topics
from storage_engine.client.cluster import Cluster
from storage_engine.tools.errors import CommandError

INTERVAL_MS = 5_000
DELTA = {
    "headrace.table.format": "delta",
    "headrace.table.commit.interval.ms": str(INTERVAL_MS),
}
"""The settings of a topic that has a table."""

_WAIT_S = 900.0
_POLL_S = 0.05


class Lakes:
    """The instances of a benchmark, one after the other."""

    def __init__(self, folder: Path, brokers: Brokers) -> None:
        self.folder = folder
        self.brokers = brokers
        self._instances = 0

    @contextlib.contextmanager
    def running(self, root: Path, *, cores: int) -> Iterator[int]:
        """Yield the process id of an instance, which has so many cores."""
        self._instances += 1
        name = f"lake-{self._instances}"
        command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", "lake", "run"]
        command += ["--bootstrap-server", self.brokers.bootstrap_servers]
        command += ["--root", str(root), "--group", name]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        log = self.folder / f"{name}.log"
        with tethered(command, log=log, folder=self.folder, environment=environment) as process:
            os.sched_setaffinity(process.pid, sorted(os.sched_getaffinity(0))[:cores])
            yield process.pid

    def have_tables(self, *topics: str) -> None:
        """Have each of these topics written into a table."""
        with Cluster(self.brokers.bootstrap_servers) as cluster:
            for topic in topics:
                alter_topic_configs(cluster, topic, DELTA)

    def forget(self, *topics: str) -> None:
        """Delete topics: each instance writes all tables that there are."""
        with Cluster(self.brokers.bootstrap_servers) as cluster:
            delete_topics(cluster, topics)


def has_table(place: Path) -> bool:
    """Whether the table was made: its rows are read from then on."""
    return (place / "_delta_log" / f"{0:020}.json").exists()


def rows_in(place: Path) -> int:
    """The number of rows of a table, from its log; 0 while there is none."""
    from deltalake import DeltaTable

    if not has_table(place):
        return 0
    actions = DeltaTable(str(place)).get_add_actions(flatten=True)
    return sum(int(each or 0) for each in actions["num_records"].to_pylist())


def peak_kib(pid: int) -> int:
    """The most resident memory of a process since its start."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise CommandError(f"/proc/{pid}/status has no line VmHWM")


def wait_for(there: Callable[[], int], what: str, *, pause_s: float = _POLL_S) -> int:
    """Wait for a figure that is not 0; returns it."""
    deadline = time.monotonic() + _WAIT_S
    while not (found := there()):
        if time.monotonic() > deadline:
            raise CommandError(f"the lake has not written {what} within {_WAIT_S:.0f} s")
        time.sleep(pause_s)
    return found
