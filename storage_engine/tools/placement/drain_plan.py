"""Plans the way of all replicas from some brokers, or the reasons why there is none.

First leaders move to in-sync replicas elsewhere: the brokers come last in the lists of replicas,
and no data moves. Then each replica is replaced by one on the broker with the fewest of those that
can take it: on no machine that has a replica already, and on a rack with the fewest. A partition
keeps its number of replicas, and lies on as many machines as before. A reassignment that leads away
from the brokers already is left to end.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement.layout import Layout, PlacedPartition

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    leaders: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """The same replicas in another order, for the partitions whose leader moves first."""
    moves: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """The replicas at the end."""


def plan_drain(
    layout: Layout, drained: Collection[int], min_isr: Callable[[str], int] = lambda _topic: 1
) -> DrainPlan:
    """Raises CommandError, which names topics and remedy, where a partition can't do without the
    brokers. `min_isr`: a topic's min.insync.replicas, asked for where that is so."""
    return _Drain(layout, frozenset(drained)).plan(min_isr)


class _Drain:
    def __init__(self, layout: Layout, drained: frozenset[int]) -> None:
        self._layout = layout
        self._drained = drained
        self._takers = [broker for broker in layout.takers() if broker not in drained]
        self._replicas: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        for partition in layout.partitions.values():
            self._count(partition.final, partition.size_bytes)
        self._short: dict[str, tuple[int, int]] = {}
        """Topic: its replicas, and how many of them have a place without the brokers."""
        self._dead: dict[TopicPartition, int] = {}
        self._leaderless: list[TopicPartition] = []

    def _count(self, replicas: Sequence[int], size_bytes: int, by: int = 1) -> None:
        self._leaders[replicas[0]] += by
        for broker in replicas:
            self._replicas[broker] += by
            self._bytes[broker] += by * size_bytes

    def plan(self, min_isr: Callable[[str], int]) -> DrainPlan:
        plan = DrainPlan()
        # The largest first, so that small ones even out what is left.
        for tp, partition in sorted(
            self._layout.partitions.items(), key=lambda each: (-each[1].size_bytes, each[0])
        ):
            if partition.target is not None and self._is_good(partition.target):
                if self._drained.intersection(partition.replicas):
                    plan.moves[tp] = partition.target
            elif self._drained.intersection((*partition.replicas, *partition.final)):
                self._plan_one(plan, tp, partition)
        self._raise_problems(min_isr)
        return plan

    def _is_good(self, target: Collection[int]) -> bool:
        """Return True when a reassignment under way ends, and ends away from the brokers."""
        return all(
            broker not in self._drained and self._layout.place(broker).is_alive for broker in target
        )

    def _plan_one(self, plan: DrainPlan, tp: TopicPartition, partition: PlacedPartition) -> None:
        kept = [broker for broker in partition.replicas if broker not in self._drained]
        dead = [broker for broker in kept if not self._layout.place(broker).is_alive]
        if partition.leader < 0:
            self._leaderless.append(tp)
            return
        if dead:
            self._dead[tp] = dead[0]
            return
        self._count(partition.final, partition.size_bytes, by=-1)
        if self._drained.intersection((partition.leader, partition.replicas[0])):
            leader = self._fewest([broker for broker in kept if broker in partition.isr])
            if leader is not None:
                kept = [leader, *(broker for broker in kept if broker != leader)]
                leaving = [broker for broker in partition.replicas if broker in self._drained]
                # A dead one has lost its leaders; and a reassignment would wait for it.
                if all(self._layout.place(broker).is_alive for broker in leaving):
                    plan.leaders[tp] = (*kept, *leaving)
        target = self._filled(kept, len(partition.replicas))
        possible = self._layout.machines(target)
        if len(target) < len(partition.replicas) or possible < self._layout.machines(
            partition.replicas
        ):
            factor, fewest = self._short.get(tp.topic, (0, possible))
            self._short[tp.topic] = max(factor, len(partition.replicas)), min(fewest, possible)
            target = partition.final
        else:
            plan.moves[tp] = target
        self._count(target, partition.size_bytes)

    def _fewest(self, brokers: Sequence[int]) -> int | None:
        return min(brokers, key=lambda each: (self._leaders[each], each), default=None)

    def _filled(self, kept: Sequence[int], factor: int) -> tuple[int, ...]:
        """Return `factor` replicas, or fewer where brokers are too few."""
        chosen = list(kept)
        while len(chosen) < factor:
            place = self._layout.place
            machines = {place(broker).machine for broker in chosen}
            racks = Counter(place(broker).rack for broker in chosen)
            candidates = [broker for broker in self._takers if broker not in chosen]
            if not candidates:
                break
            chosen.append(
                min(
                    candidates,
                    key=lambda each: (
                        place(each).machine in machines,
                        racks[place(each).rack],
                        self._replicas[each],
                        self._bytes[each],
                        each,
                    ),
                )
            )
        return tuple(chosen)

    def _raise_problems(self, min_isr: Callable[[str], int]) -> None:
        problems = []
        if self._short:
            factor = max(factor for factor, _ in self._short.values())
            possible = min(possible for _, possible in self._short.values())
            too_few = sorted(
                topic for topic, (_, left) in self._short.items() if left < min_isr(topic)
            )
            what = f", fewer than min.insync.replicas of {_names(too_few)}" if too_few else ""
            problems.append(
                f"{_names(sorted(self._short))} would be left with {possible} of {factor} replicas "
                f"on machines of their own{what}: add a machine, uncordon one, or give the topics "
                "fewer replicas with 'headrace reassign execute'"
            )
        if self._dead:
            brokers = sorted(set(self._dead.values()))
            plural = "s" if len(brokers) > 1 else ""
            problems.append(
                f"{_names(sorted(self._dead))} also have replicas on dead broker{plural} "
                f"{', '.join(map(str, brokers))}, so that their moves could not end: start "
                f"{'them' if plural else 'it'}, or drain {'them' if plural else 'it'} first"
            )
        if self._leaderless:
            problems.append(
                f"{_names(sorted(self._leaderless))} have no leader to copy from: start the "
                "brokers of their in-sync replicas first ('headrace topics describe' shows them)"
            )
        if problems:
            raise CommandError(f"nothing was changed: {'; '.join(problems)}")


def _names(things: Iterable[object]) -> str:
    names = [str(each) for each in things]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
