"""Headrace with two listeners: clients reach one directly, the other through a link.

Rule: the settings are those of the comparison with Apache Kafka, with more listeners.
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
    """The running brokers, and the two ways to them."""

    direct: Brokers
    linked: Brokers
    """The same brokers, through the link."""
    ports: dict[int, int]
    """The ports of the brokers behind the link, by the ports of the link."""
    folder: Path

    @contextlib.contextmanager
    def link(self, bits_per_second: int) -> Iterator[Link]:
        """Run the link within the block: without it no client comes through."""
        with Link.running(self.folder, self.ports, bits_per_second) as link:
            yield link


@contextlib.contextmanager
def linked_brokers(folder: Path) -> Iterator[LinkedBrokers]:
    """Run a cluster within the block, in a folder below `folder`."""
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
