"""Headrace with two listeners: clients reach one directly, the other through a link.

Rule: the settings are those of the comparison with Apache Kafka; only the listeners are more.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.beside_kafka.clusters import BROKERS, SETTINGS
from benchmarks.beside_kafka.environment import ROOT
from benchmarks.beside_kafka.rows import OURS
from benchmarks.beside_kafka.sides import Brokers
from benchmarks.beside_kafka.tethered import check_runs, tethered
from benchmarks.typed.link import HOST, Link
from storage_engine.client import Admin
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.broker_settings import write_settings
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.zookeeper.embedded import start_embedded

_START_S = 60.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedBrokers:
    """Those that are up."""

    direct: Brokers
    linked: Brokers
    """The same, through the link."""
    ports: dict[int, int]
    """Behind the link, by those before it."""
    folder: Path

    @contextlib.contextmanager
    def link(self, bits_per_second: int) -> Iterator[Link]:
        """Up within the block: without it nobody comes through."""
        with Link.running(self.folder, self.ports, bits_per_second) as link:
            yield link


@contextlib.contextmanager
def linked_brokers(folder: Path) -> Iterator[LinkedBrokers]:
    """A cluster that is up within the block, in a folder below this one."""
    home = folder / OURS
    home.mkdir()
    ports: list[int] = []
    for _ in range(3 * BROKERS):
        ports.append(find_free_port(HOST, avoid=ports))
    direct, behind, before = (ports[each::3] for each in range(3))
    zookeeper = start_embedded(home / "zookeeper")
    with contextlib.ExitStack() as stack:
        stack.callback(zookeeper.stop)
        started = []
        for number in range(BROKERS):
            listeners = f"PLAINTEXT://{HOST}:{direct[number]},LINK://{HOST}:"
            settings = {
                "broker.id": str(number + 1),
                "log.dirs": str(home / f"data-{number + 1}"),
                "zookeeper.connect": zookeeper.connect,
                "listeners": f"{listeners}{behind[number]}",
                "advertised.listeners": f"{listeners}{before[number]}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LINK:PLAINTEXT",
                **dict(SETTINGS),
            }
            file, log = home / f"broker-{number + 1}.properties", home / f"broker-{number + 1}.log"
            write_settings(file, settings)
            command = [sys.executable, "-P", "-m", "storage_engine.tools.cli", "broker", str(file)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            process = stack.enter_context(
                tethered(command, log=log, folder=home, environment=environment)
            )
            started.append((process, log))

        def check() -> None:
            for process, log in started:
                check_runs(process, "a broker of Headrace", log)

        pids = [process.pid for process, _ in started]
        brokers = LinkedBrokers(
            direct=Brokers(_servers(direct), pids),
            linked=Brokers(_servers(before), pids),
            ports=dict(zip(before, behind, strict=True)),
            folder=home,
        )
        _wait(brokers.direct.bootstrap_servers, check)
        yield brokers


def _servers(ports: list[int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in ports)


def _wait(servers: str, check: Callable[[], None]) -> None:
    """Until all brokers know each other."""
    deadline = time.monotonic() + _START_S
    while True:
        check()
        try:
            with Admin({"bootstrap.servers": servers}) as admin:
                if len(admin.describe_cluster().brokers) == BROKERS:
                    return
        except HeadraceError:
            pass
        if time.monotonic() > deadline:
            raise CommandError(f"Headrace is not up after {_START_S:.0f} s")
        time.sleep(_POLL_S)
