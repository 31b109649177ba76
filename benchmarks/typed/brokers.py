"""Headrace with two listeners: clients reach one directly, the other through a link.

Rule: the settings are those of the comparison with Apache Kafka; only the listeners are more.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.beside_kafka.clusters import BROKERS, SETTINGS
from benchmarks.beside_kafka.rows import OURS
from benchmarks.support.brokers import HOST, Brokers, free_ports, running_brokers
from benchmarks.typed.link import Link


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
    ports = free_ports(3 * BROKERS)
    direct, behind, before = (ports[each::3] for each in range(3))
    settings = [
        {
            "listeners": f"PLAINTEXT://{HOST}:{plain},LINK://{HOST}:{ours}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{plain},LINK://{HOST}:{theirs}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LINK:PLAINTEXT",
            **dict(SETTINGS),
        }
        for plain, ours, theirs in zip(direct, behind, before, strict=True)
    ]
    servers = _servers(direct)
    with running_brokers(home, "a broker of Headrace", servers, settings) as pids:
        yield LinkedBrokers(
            direct=Brokers(servers, pids),
            linked=Brokers(_servers(before), pids),
            ports=dict(zip(before, behind, strict=True)),
            folder=home,
        )


def _servers(ports: list[int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in ports)
