"""Headrace with two listeners: clients reach one directly, the other through a link.

Rule: the settings are those of the comparison with Apache Kafka; only the listeners are more.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.beside_kafka.clusters import BROKERS, SETTINGS
from benchmarks.beside_kafka.rows import OURS
from benchmarks.support.brokers import (
    HOST,
    Brokers,
    free_ports,
    know_each_other,
    started_broker,
    wait_until,
)
from benchmarks.typed.link import Link
from storage_engine.zookeeper.embedded import start_embedded


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
    ports = free_ports(3 * BROKERS)
    direct, behind, before = (ports[each::3] for each in range(3))
    with contextlib.ExitStack() as stack:
        zookeeper = start_embedded(home / "zookeeper")
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
            broker = started_broker(home, f"broker-{number + 1}", settings)
            started.append(stack.enter_context(broker))
        servers = _servers(direct)
        wait_until(lambda: know_each_other(servers, BROKERS), "a broker of Headrace", started)
        pids = [process.pid for process, _ in started]
        yield LinkedBrokers(
            direct=Brokers(servers, pids),
            linked=Brokers(_servers(before), pids),
            ports=dict(zip(before, behind, strict=True)),
            folder=home,
        )


def _servers(ports: list[int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in ports)
