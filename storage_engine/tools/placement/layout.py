"""The replicas of a cluster and the brokers that hold them, as plans are made from them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from storage_engine.core.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBroker:
    """A broker, as whoever places replicas knows it."""

    machine: str
    """`broker.host.name`; a broker without one is a machine of its own."""
    rack: str | None = None
    is_alive: bool = True
    is_cordoned: bool = False

    @property
    def takes_replicas(self) -> bool:
        return self.is_alive and not self.is_cordoned


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPartition:
    """A partition with its replicas before a reassignment that is under way."""

    replicas: tuple[int, ...]
    """The first is the preferred leader."""
    leader: int
    """-1 for none."""
    isr: frozenset[int]
    target: tuple[int, ...] | None = None
    """The replicas after the reassignment that is under way; their order is not known."""
    size_bytes: int = 0
    bytes_per_s: float = 0.0

    @property
    def final(self) -> tuple[int, ...]:
        """The replicas once nothing is under way."""
        return self.replicas if self.target is None else self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    brokers: Mapping[int, KnownBroker]
    """All brokers that are alive, hold a replica, or have settings."""
    partitions: Mapping[TopicPartition, PlacedPartition]

    def place(self, broker: int) -> KnownBroker:
        """Return the place of a broker; of one that is not known, as that of a dead one."""
        known = self.brokers.get(broker)
        return known or KnownBroker(machine=own_machine(broker), is_alive=False)

    def machines(self, replicas: Collection[int]) -> int:
        """Return how many machines the replicas lie on."""
        return len({self.place(broker).machine for broker in replicas})

    def takers(self) -> list[int]:
        """Return the brokers that can take replicas."""
        return sorted(each for each, place in self.brokers.items() if place.takes_replicas)


def own_machine(broker: int) -> str:
    """Return the name of the machine of a broker that has no `broker.host.name`."""
    return f"broker {broker}"
