"""Brokers of Headrace with settings that `headrace up` does not make, and waiting for servers.

Each is a process of its own that ends with this one. All files are in the folder that is given.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.beside_kafka.environment import ROOT
from benchmarks.beside_kafka.tethered import check_runs, tethered
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.broker_settings import write_settings
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.zookeeper.embedded import start_embedded

HOST = "127.0.0.1"

Started = tuple["subprocess.Popen[str]", Path]
"""A process, and its log."""


class Brokers(NamedTuple):
    """The brokers of one side of a comparison."""

    bootstrap_servers: str
    pids: Sequence[int]


_POLL_S = 0.1
_BROKER = ("storage_engine.tools.cli", "broker")


def free_ports(count: int, avoid: Collection[int] = ()) -> list[int]:
    """Return so many free ports of this machine, all different and none of them in `avoid`."""
    ports: list[int] = []
    for _ in range(count):
        ports.append(find_free_port(HOST, avoid=[*avoid, *ports]))
    return ports


@contextlib.contextmanager
def _started(
    folder: Path, name: str, settings: Mapping[str, str], module: Sequence[str]
) -> Iterator[Started]:
    """Run a broker within the block, which may not serve yet. `module`: runs it, with arguments."""
    file, log = folder / f"{name}.properties", folder / f"{name}.log"
    write_settings(file, settings)
    command = [sys.executable, "-P", "-m", *module, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tethered(command, log=log, folder=folder, environment=environment) as process:
        yield process, log


@contextlib.contextmanager
def running_brokers(
    folder: Path,
    what: str,
    servers: str,
    settings: Sequence[Mapping[str, str]],
    module: Sequence[str] = _BROKER,
) -> Iterator[list[int]]:
    """Run brokers within the block, in a new folder, with a ZooKeeper of their own, and yield their
    process ids. `settings`: of each broker, with its listeners."""
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        zookeeper = start_embedded(folder / "zookeeper")
        stack.callback(zookeeper.stop)
        started = []
        for number, own in enumerate(settings, 1):
            usual = {
                "broker.id": str(number),
                "log.dirs": str(folder / f"data-{number}"),
                "zookeeper.connect": zookeeper.connect,
            }
            broker = _started(folder, f"broker-{number}", {**usual, **own}, module)
            started.append(stack.enter_context(broker))
        wait_until(lambda: know_each_other(servers, len(started)), what, started)
        yield [process.pid for process, _ in started]


def wait_until(
    is_up: Callable[[], bool], what: str, started: Sequence[Started], timeout_s: float = 60.0
) -> None:
    """Wait until `is_up`; CommandError when one of the processes ends, and after the time."""
    deadline = time.monotonic() + timeout_s
    while True:
        for process, log in started:
            check_runs(process, what, log)
        if is_up():
            return
        if time.monotonic() > deadline:
            raise CommandError(f"{what} is not up after {timeout_s:.0f} s")
        time.sleep(_POLL_S)


def know_each_other(servers: str, brokers: int) -> bool:
    """Whether each server's metadata has so many brokers."""
    try:
        for server in servers.split(","):
            with Cluster(server, bootstrap_timeout_ms=1_000, deadline_ms=2_000) as cluster:
                if len(cluster.metadata([]).brokers) < brokers:
                    return False
    except HeadraceError:
        return False
    return True
