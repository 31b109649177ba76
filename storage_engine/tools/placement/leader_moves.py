"""Searches for moves of preferred leaders between the replicas of their partitions.

Where no replica of an overloaded leader's partitions is on a broker with room, leaders move along a
chain: each takes the place of the next.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import eq

from storage_engine.core.ids import TopicPartition
from storage_engine.tools.placement.layout import Layout
from storage_engine.tools.placement.loads import Band


class LeaderSearch:
    """The search for moves of preferred leaders: each partition's changes at most once."""

    def __init__(
        self, layout: Layout, now: dict[TopicPartition, tuple[int, ...]], band: Band
    ) -> None:
        """`now`: the replicas of the partitions that may change, which `improve` changes."""
        self._now = now
        self._band = band
        self._takers = layout.takers()
        self._led: dict[int, int] = dict.fromkeys(self._takers, 0)
        self._by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp, partition in sorted(layout.partitions.items()):
            leader = now.get(tp, partition.final)[0]
            if leader in self._led:
                self._led[leader] += 1
            if tp in now:
                self._by_leader[leader].append(tp)

    def improve(self) -> None:
        """Move leaders until each broker leads a number near the mean, or no chain helps."""
        stuck: set[int] = set()
        while True:
            high = [b for b in self._takers if self._led[b] > self._band.highest and b not in stuck]
            low = [b for b in self._takers if self._led[b] < self._band.lowest and b not in stuck]
            if high:
                start = max(high, key=lambda b: (self._led[b], -b))
                chain = self._chain([start], self._has_room)
            elif low:
                start = min(low, key=lambda b: (self._led[b], b))
                givers = [b for b in self._takers if self._led[b] - 1 >= self._band.lowest]
                givers.sort(key=lambda b: (-self._led[b], b))
                chain = self._chain(givers, partial(eq, start))
            else:
                return
            if chain:
                self._shift(chain)
            else:
                stuck.add(start)

    def _has_room(self, broker: int) -> bool:
        return self._led[broker] + 1 <= self._band.highest

    def _chain(
        self, starts: Sequence[int], is_end: Callable[[int], bool]
    ) -> list[tuple[TopicPartition, int]]:
        """Return the shortest chain of partitions, each with its next leader, which is the leader
        of the partition that follows; empty where there is none."""
        came: dict[int, tuple[TopicPartition, int, int] | None] = dict.fromkeys(starts)
        level = list(starts)
        while level:
            reached = []
            for broker in level:
                for tp in self._by_leader[broker]:
                    for other in self._now[tp][1:]:
                        if other not in came and other in self._led:
                            came[other] = tp, other, broker
                            reached.append(other)
            if ends := [broker for broker in reached if is_end(broker)]:
                return self._back(came, min(ends, key=lambda each: (self._led[each], each)))
            level = reached
        return []

    @staticmethod
    def _back(
        came: Mapping[int, tuple[TopicPartition, int, int] | None], end: int
    ) -> list[tuple[TopicPartition, int]]:
        chain = []
        step = came[end]
        while step is not None:
            tp, leader, before = step
            chain.append((tp, leader))
            step = came[before]
        return chain

    def _shift(self, chain: Sequence[tuple[TopicPartition, int]]) -> None:
        for tp, leader in chain:
            replicas = self._now[tp]
            self._by_leader[replicas[0]].remove(tp)
            self._led[replicas[0]] -= 1
            self._led[leader] += 1
            self._by_leader[leader].append(tp)
            self._now[tp] = (leader, *(broker for broker in replicas if broker != leader))
