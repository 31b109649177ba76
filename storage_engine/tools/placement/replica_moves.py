"""Searches for moves of replicas that bring the loads of brokers nearer to the mean.

A replica moves at most once, onto a machine that has none of its partition, and to no rack that
has more of them than the one that it leaves; never to a cordoned broker.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.placement.layout import Layout, PlacedPartition
from storage_engine.tools.placement.loads import Band, Load, Loads, loads, replica_loads

_LEAST = 1e-9
"""A change of a sum of squares that counts as one."""
_MOST_EXCHANGED = 20
"""The replicas of each of two brokers that are tried in an exchange."""


class Move(NamedTuple):
    """A replica on its way to another broker."""

    tp: TopicPartition
    source: int
    destination: int
    leader: int
    """The preferred leader afterwards."""


class ReplicaSearch:
    """The search for moves of replicas."""

    def __init__(self, layout: Layout, limits: Mapping[Load, Band]) -> None:
        self._layout = layout
        self._limits = limits
        self._driving = [load for load in limits if load is not Load.LEADERS]
        self._takers = layout.takers()
        self._takers_set = frozenset(self._takers)
        self._loads = loads(layout, {})
        self.now: dict[TopicPartition, tuple[int, ...]] = {
            tp: partition.replicas
            for tp, partition in layout.partitions.items()
            if may_change(layout, partition)
        }
        self._on: dict[int, set[TopicPartition]] = defaultdict(set)
        """The partitions of which a broker's replica may move: it has not moved yet."""
        for tp, replicas in self.now.items():
            for broker in replicas:
                self._on[broker].add(tp)

    def spread(self) -> None:
        """Take replicas from machines that have two of a partition, where another has none."""
        for tp, replicas in sorted(self.now.items()):
            for source in reversed(replicas):
                of_source = self._layout.place(source).machine
                others = [b for b in self.now[tp] if b != source]
                if all(self._layout.place(b).machine != of_source for b in others):
                    continue
                better = [
                    move
                    for broker in self._takers
                    if self._is_possible(move := self._move(tp, source, broker), 1)
                ]
                if better:
                    # To the fewest replicas, then to the fewest bytes.
                    self._carry_out(
                        min(
                            better, key=lambda move: (*self._loads[move.destination].values(), move)
                        )
                    )

    def improve(self) -> bool:
        """Carry out one move or exchange that brings loads nearer to the mean; False: there is
        none."""
        for source, destination in self._pairs():
            found = self._best([(move,) for move in self._moves(source, destination)])
            found = found or self._best(self._exchanges(source, destination))
            if found:
                for move in found:
                    self._carry_out(move)
                return True
        return False

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Yield brokers beyond the bands with those that may help, the furthest first."""
        cost = {broker: self._beyond(self._loads[broker]) for broker in self._takers}
        for broker in sorted(self._takers, key=lambda b: (-sum(cost[b]), b)):
            if sum(cost[broker]) <= _LEAST:
                return
            for load in self._driving:
                band, of_broker = self._limits[load], self._loads[broker][load]
                others = sorted(
                    (self._loads[other][load], other) for other in self._takers if other != broker
                )
                if of_broker > band.highest:
                    yield from ((broker, other) for _, other in others)
                elif of_broker < band.lowest:
                    yield from ((other, broker) for _, other in reversed(others))

    def _moves(self, source: int, destination: int) -> list[Move]:
        moves = (self._move(tp, source, destination) for tp in sorted(self._on[source]))
        return [move for move in moves if self._is_possible(move)]

    def _move(self, tp: TopicPartition, source: int, destination: int) -> Move:
        """The replica takes the place of the other in the list; where leaders count, the replica
        leads whose broker leads least."""
        leader = self.now[tp][0]
        if leader == source:
            others = [broker for broker in self.now[tp] if broker in self._takers_set]
            leader = destination
            if Load.LEADERS in self._limits:
                leader = min(
                    (destination, *(broker for broker in others if broker != source)),
                    key=lambda each: (self._loads[each][Load.LEADERS], each),
                )
        return Move(tp, source, destination, leader)

    def _exchanges(self, source: int, destination: int) -> Iterator[tuple[Move, ...]]:
        there = self._moves(source, destination)
        back = self._moves(destination, source)
        for load in self._driving:
            if load is Load.REPLICAS:
                continue
            heavy = sorted(there, key=lambda move: (-self._weight(move.tp, load), move))
            light = sorted(back, key=lambda move: (self._weight(move.tp, load), move))
            for one in heavy[:_MOST_EXCHANGED]:
                for other in light[:_MOST_EXCHANGED]:
                    if one.tp != other.tp:
                        yield one, other

    def _weight(self, tp: TopicPartition, load: Load) -> float:
        return replica_loads(self._layout.partitions[tp])[load]

    def _is_possible(self, move: Move, more_machines: int = 0) -> bool:
        """Return True when the partition's replicas lie on as many machines afterwards, and as
        evenly on racks. `more_machines`: on so many more machines, however they lie on racks."""
        before = self.now[move.tp]
        if move.tp not in self._on[move.source] or move.destination in before:
            return False
        if move.destination in self._layout.partitions[move.tp].replicas:
            return False
        after = [b for b in before if b != move.source] + [move.destination]
        layout = self._layout
        if layout.machines(after) < layout.machines(before) + more_machines:
            return False
        source, destination = layout.place(move.source).rack, layout.place(move.destination).rack
        racks = [layout.place(broker).rack for broker in before]
        is_as_even = source == destination or racks.count(destination) < racks.count(source)
        return is_as_even or more_machines > 0

    def _best(self, choices: Iterable[tuple[Move, ...]]) -> tuple[Move, ...]:
        """Return the choice that lessens most what is beyond the bands; () when none does."""
        best: tuple[Move, ...] = ()
        least = -_LEAST
        for moves in choices:
            change = self._change(moves)
            if change is not None and change < least:
                best, least = moves, change
        return best

    def _change(self, moves: Sequence[Move]) -> float | None:
        """Return by how much the moves change what is beyond the bands; None where they add to a
        load that counts."""
        after: Loads = {}
        for move in moves:
            self._apply(move, after)
        total = [0.0] * len(self._limits)
        for broker, found in after.items():
            before = self._beyond(self._loads[broker])
            for place, value in enumerate(self._beyond(found)):
                total[place] += value - before[place]
        return None if any(each > _LEAST for each in total) else sum(total)

    def _apply(self, move: Move, changed: Loads) -> None:
        """Add the loads of the brokers after the move to `changed`, or change them there."""
        weights = replica_loads(self._layout.partitions[move.tp])
        former = self.now[move.tp][0]
        changes = [(move.source, load, -weight) for load, weight in weights.items()]
        changes += [(move.destination, load, weight) for load, weight in weights.items()]
        changes += [(former, Load.LEADERS, -1.0), (move.leader, Load.LEADERS, 1.0)]
        for broker, load, change in changes:
            if broker not in changed:
                changed[broker] = dict(self._loads[broker])
            changed[broker][load] += change

    def _beyond(self, of_broker: Mapping[Load, float]) -> list[float]:
        return [band.beyond(of_broker[load]) for load, band in self._limits.items()]

    def _carry_out(self, move: Move) -> None:
        after: Loads = {}
        self._apply(move, after)
        self._loads |= after
        self._on[move.source].discard(move.tp)
        placed = [
            move.destination if broker == move.source else broker for broker in self.now[move.tp]
        ]
        self.now[move.tp] = (move.leader, *(broker for broker in placed if broker != move.leader))


def may_change(layout: Layout, partition: PlacedPartition) -> bool:
    """Return True where a reassignment could be carried out at once."""
    return (
        partition.target is None
        and partition.leader >= 0
        and all(layout.place(broker).is_alive for broker in partition.replicas)
    )
