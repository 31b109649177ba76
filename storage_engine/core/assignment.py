"""Chooses the brokers for the replicas of partitions.

Where no brokers share a machine and none have zones (R-REP1): s = the broker preferred for the
fewest partitions; replica 0 of partition i lies on (s + i) mod n, replica j >= 1 on
(s + i + 1 + (i // n + j - 1) mod (n - 1)) mod n. For s = 0 and i < n that is (i + j) mod n.

Else (R-REP13) the replicas of a partition are chosen one after the other: from a zone with the
fewest of them, there from a machine without one, there the broker with the fewest replicas of all
topics. The leader is preferred for the fewest partitions among them.

    zones          a               b               c            a heap of machines each
    machines    h1   h2         h3   h4         h5   h6         a heap of brokers each
    brokers     1 2  3 4        5 6  7 8        9 …             fewest replicas first

To take the least loaded of those that are possible is as even as the rule allows: a machine that
every partition needs stays below the others, and all others rise together. Brokers with equally
many replicas come in another order at each number, so that a broker shares its partitions with
many others.
"""

from collections.abc import Generator, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeVar

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId
from storage_engine.core.placement import Machine, Places, ReplicaCounts, machine_of, takers
from storage_engine.core.preferred_leaders import PreferredLeaders

Assignment = dict[int, tuple[BrokerId, ...]]
"""Partition -> replicas; the first is the preferred one."""

PARTITIONS_PER_STEP = 64
"""The partitions that are placed before others have their turn: some 1 ms."""

T = TypeVar("T")

AssignmentSteps = Generator[None, None, Assignment]


class NewPartitions(NamedTuple):
    """The partitions to place: first .. first + partitions - 1 of a topic."""

    partitions: int
    replication_factor: int
    first: int = 0
    start_broker: BrokerId | None = None
    """The preferred replica of the topic's partition 0, to go on with its sequence."""
    may_share_machines: bool = False
    """Whether replicas share machines where there are too few, instead of an error."""


def assign_replicas(
    places: Places, new: NewPartitions, counts: ReplicaCounts | None = None
) -> Assignment:
    """Return the replicas of new partitions. Raises KafkaError.

    `places`: the live brokers; those that are cordoned get none. `counts`: the replicas that
    brokers have already."""
    return all_at_once(assignment_steps(places, new, counts))


def all_at_once(steps: Generator[None, None, T]) -> T:
    """Return the result of work in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def assignment_steps(
    places: Places, new: NewPartitions, counts: ReplicaCounts | None = None
) -> AssignmentSteps:
    """Like `assign_replicas`, but yields after each PARTITIONS_PER_STEP."""
    _check(places, new)
    open_places = takers(places)
    known = ReplicaCounts() if counts is None else counts
    zones = {place.zone for place in open_places.values()}
    if len(zones) == 1 and _machines(open_places) == len(open_places):
        return (yield from _in_sequence(sorted(open_places), new, known.preferred))
    return (yield from _spread(open_places, new, known))


def lacks_machines(places: Places, replication_factor: int) -> bool:
    """Return whether replicas have to share machines."""
    return _machines(takers(places)) < replication_factor


def _machines(places: Places) -> int:
    return len({machine_of(broker, place) for broker, place in places.items()})


def _check(places: Places, new: NewPartitions) -> None:
    """Raises KafkaError for what can't be placed."""
    if new.partitions <= 0:
        raise KafkaError(
            f"{new.partitions} partitions are not possible: a topic has at least 1",
            ErrorCode.INVALID_PARTITIONS,
        )
    open_places = takers(places)
    brokers, machines = len(open_places), _machines(open_places)
    enough = brokers if new.may_share_machines else machines
    if 1 <= new.replication_factor <= enough:
        return
    there = (
        f"{brokers} brokers" if enough == brokers else f"{brokers} brokers on {machines} machines"
    )
    cordoned = len(places) - brokers
    if cordoned:
        there += f" that take new replicas ({cordoned} more are cordoned)"
    remedies = [f"ask for 1 to {enough}"] if enough else []
    if enough < brokers:
        remedies.append("add machines: replicas of a partition never share a broker.host.name")
    elif cordoned:
        remedies.append("uncordon some (cordoned.log.dirs)")
    remedy = ", or ".join(remedies)
    raise KafkaError(
        f"replication factor {new.replication_factor} is not possible with {there}: {remedy}",
        ErrorCode.INVALID_REPLICATION_FACTOR,
    )


# --- without zones, each broker on a machine of its own ---


def _in_sequence(
    order: list[BrokerId], new: NewPartitions, preferred: Mapping[BrokerId, int]
) -> AssignmentSteps:
    count = len(order)
    if new.start_broker in order:
        start = order.index(new.start_broker)
    else:
        start = min(range(count), key=lambda index: (preferred.get(order[index], 0), index))
    result: Assignment = {}
    for i in range(new.first, new.first + new.partitions):
        if result and len(result) % PARTITIONS_PER_STEP == 0:
            yield
        shift = i // count
        places = [(start + i) % count]
        places.extend(
            (start + i + 1 + (shift + j - 1) % (count - 1)) % count
            for j in range(1, new.replication_factor)
        )
        result[i] = tuple(order[place] for place in places)
    return result


# --- with zones, or brokers that share machines ---


def _mixed(load: int, number: int) -> int:
    """Return a number by which those of equal load are ordered, differently at each load."""
    mixed = (load * 0x9E3779B1 + number * 0x85EBCA77 + 0x27D4EB2F) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    return mixed ^ (mixed >> 13)


_Rank = tuple[int, int, BrokerId]
"""Replicas of a broker, its `_mixed`, its id: the lowest is next."""


class _Machine:
    """The brokers of a machine."""

    __slots__ = ("brokers", "leaders", "size", "waiting")

    def __init__(self) -> None:
        self.brokers: list[_Rank] = []
        """A heap, without those that have a replica of the present partition."""
        self.size = 0
        self.leaders = 0
        self.waiting: list[_Rank] = []
        """The brokers that have one, with their next ranks."""

    def add(self, rank: _Rank, leaders: int) -> None:
        heappush(self.brokers, rank)
        self.size += 1
        self.leaders += leaders

    def take(self) -> BrokerId:
        """Give the least loaded broker a replica of the present partition."""
        load, _, broker = heappop(self.brokers)
        self.waiting.append((load + 1, _mixed(load + 1, broker), broker))
        return broker

    def begin_partition(self) -> None:
        for rank in self.waiting:
            heappush(self.brokers, rank)
        self.waiting.clear()


class _Zone:
    """The machines of a zone."""

    __slots__ = ("heap", "machines", "taken", "touched")

    def __init__(self) -> None:
        self.machines: list[_Machine] = []
        self.heap: list[tuple[int, _Rank, int]] = []
        """(replicas of the present partition, rank of the next broker, index of the machine)"""
        self.taken = 0
        """The number of replicas of the present partition."""
        self.touched: list[int] = []

    def begin(self) -> None:
        self.heap = [(0, machine.brokers[0], i) for i, machine in enumerate(self.machines)]
        heapify(self.heap)

    def take(self, *, may_share: bool) -> BrokerId:
        """Give the next broker a replica of the present partition."""
        used, _, index = heappop(self.heap)
        machine = self.machines[index]
        self.taken += 1
        broker = machine.take()
        self.touched.append(index)
        if may_share and machine.brokers:
            heappush(self.heap, (used + 1, machine.brokers[0], index))
        return broker

    def begin_partition(self, *, may_share: bool) -> None:
        if not self.taken:
            return
        touched = set(self.touched)
        if may_share:
            self.heap = [entry for entry in self.heap if entry[2] not in touched]
            heapify(self.heap)
        for index in touched:
            machine = self.machines[index]
            machine.begin_partition()
            heappush(self.heap, (0, machine.brokers[0], index))
        self.touched.clear()
        self.taken = 0


class _Machines:
    """The machines of the brokers that take replicas."""

    def __init__(self, places: Places, counts: ReplicaCounts) -> None:
        self._of: dict[BrokerId, _Machine] = {}
        machines: dict[Machine, _Machine] = {}
        zones: dict[Machine, str | None] = {}
        for broker in sorted(places):
            key = machine_of(broker, places[broker])
            load = counts.replicas[broker]
            machine = self._of[broker] = machines.setdefault(key, _Machine())
            machine.add((load, _mixed(load, broker), broker), counts.preferred[broker])
            zones[key] = zones.get(key) or places[broker].zone
        by_zone: dict[str, _Zone] = {}
        for key, machine in machines.items():
            by_zone.setdefault(zones[key] or "", _Zone()).machines.append(machine)
        for zone in by_zone.values():
            zone.begin()
        self.zones = [by_zone[name] for name in sorted(by_zone)]
        """A machine is in the zone of its first broker that has one."""

    def leaders_added(self, broker: BrokerId, change: int) -> float:
        """Add to the leaders of the broker's machine; return how many there are for each of its
        brokers."""
        machine = self._of[broker]
        machine.leaders += change
        return machine.leaders / machine.size


def _spread(places: Places, new: NewPartitions, counts: ReplicaCounts) -> AssignmentSteps:
    machines = _Machines(places, counts)
    zones = machines.zones
    may_share = lacks_machines(places, new.replication_factor)
    chosen: list[tuple[BrokerId, ...]] = []
    for number in range(new.partitions):
        if number % PARTITIONS_PER_STEP == 0:
            yield
        replicas = []
        for _ in range(new.replication_factor):
            zone = min(
                (zone for zone in zones if zone.heap), key=lambda zone: (zone.taken, zone.heap[0])
            )
            replicas.append(zone.take(may_share=may_share))
        for zone in zones:
            zone.begin_partition(may_share=may_share)
        chosen.append(tuple(replicas))
    leaders = PreferredLeaders(counts.preferred, machines.leaders_added, _mixed)
    ordered = yield from leaders.choose(chosen)
    return dict(enumerate(ordered, new.first))
