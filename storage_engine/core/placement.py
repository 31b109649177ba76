"""Where replicas may go: the zone and the machine of each broker, and whether it takes new ones.

A broker is cordoned when all of its log dirs are: its replicas stay and are served, and it gets no
others. Source: R-REP13, KIP-1066.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from storage_engine.core.ids import BrokerId

CORDONED_LOG_DIRS = "cordoned.log.dirs"
ALL_LOG_DIRS = "*"


class BrokerPlace(NamedTuple):
    """The place of a live broker."""

    zone: str | None = None
    """Its `broker.rack`."""
    machine: str | None = None
    """Its `broker.host.name`; a broker without one counts as a machine of its own."""
    is_cordoned: bool = False


Places = Mapping[BrokerId, BrokerPlace]
"""Live broker -> its place."""

Machine = str | BrokerId


def machine_of(broker: BrokerId, place: BrokerPlace) -> Machine:
    """Return what stands for the broker's machine: its name, or the broker itself."""
    return broker if place.machine is None else place.machine


def is_cordoned(cordoned: Collection[str], log_dirs: Collection[str]) -> bool:
    """Return whether a value of `cordoned.log.dirs` names all log dirs of a broker."""
    return ALL_LOG_DIRS in cordoned or (bool(log_dirs) and set(log_dirs) <= set(cordoned))


def takers(places: Places) -> dict[BrokerId, BrokerPlace]:
    """Return the brokers that take new replicas."""
    return {broker: place for broker, place in places.items() if not place.is_cordoned}


def cordoned_among(brokers: Collection[int], places: Places) -> list[BrokerId]:
    """Return those of the brokers that take no new replicas."""
    found = (broker for broker in map(BrokerId, brokers) if broker in places)
    return sorted(broker for broker in found if places[broker].is_cordoned)


def cordoned_problem(cordoned: Sequence[BrokerId]) -> str:
    """Return what is wrong with new replicas on these brokers."""
    named = ", ".join(map(str, cordoned))
    return f"names brokers that take no new replicas, because of {CORDONED_LOG_DIRS}: {named}"


def sharing_a_machine(replicas: Sequence[BrokerId], places: Places) -> list[BrokerId]:
    """Return the replicas that are on a machine with another one of them."""
    machines = {b: machine_of(b, places.get(b, BrokerPlace())) for b in replicas}
    named = list(machines.values())
    return [broker for broker, machine in machines.items() if named.count(machine) > 1]


@dataclass(slots=True)
class ReplicaCounts:
    """How many replicas brokers have, and for how many partitions each is the preferred leader."""

    replicas: Counter[BrokerId] = field(default_factory=Counter)
    preferred: Counter[BrokerId] = field(default_factory=Counter)

    def add(self, replicas: Sequence[BrokerId]) -> None:
        """Count the replicas of a partition, of which the first is the preferred leader."""
        self._count(replicas, 1)

    def remove(self, replicas: Sequence[BrokerId]) -> None:
        self._count(replicas, -1)

    def _count(self, replicas: Sequence[BrokerId], change: int) -> None:
        for broker in replicas:
            self.replicas[broker] += change
        if replicas:
            self.preferred[replicas[0]] += change

    def copy(self) -> "ReplicaCounts":
        return ReplicaCounts(self.replicas.copy(), self.preferred.copy())
