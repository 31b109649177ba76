"""Rates over several looks: records by high watermarks, bytes by log sizes.

A log whose beginning was deleted in between is smaller: it counts as no bytes. Source: R-CON4.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from headrace_console.cluster.snapshot import Ends
from storage_engine.core.ids import TopicPartition

LOOKS = 5
"""The number of looks that a rate spans: the last four intervals."""
POINTS = 150
"""The number of points kept: five minutes, with one every two seconds."""


class Point(NamedTuple):
    """The rates of the whole cluster at one look."""

    at_ms: int
    records_per_s: float
    bytes_per_s: float | None


class Traffic:
    """The rates of a cluster. Only its watcher adds looks; what it returns is never changed."""

    def __init__(self) -> None:
        self._ends: deque[tuple[int, dict[TopicPartition, int]]] = deque(maxlen=LOOKS)
        self._sizes: deque[tuple[int, dict[TopicPartition, int]]] = deque(maxlen=LOOKS)
        self._points: deque[Point] = deque(maxlen=POINTS)
        self.rates: dict[TopicPartition, float] = {}
        self.topic_bytes_per_s: dict[str, float] = {}

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(self._points)

    def add(
        self,
        at_ms: int,
        ends: Mapping[TopicPartition, Ends],
        sizes: Mapping[TopicPartition, int],
        *,
        new_sizes: bool,
    ) -> None:
        """Add a look. `new_sizes`: whether this look has read `sizes`, too."""
        now = {
            tp: each.high_watermark for tp, each in ends.items() if each.high_watermark is not None
        }
        last = self._ends[-1] if self._ends else None
        self._ends.append((at_ms, now))
        if new_sizes:
            self._sizes.append((at_ms, dict(sizes)))
        self.rates = _rates(self._ends)
        by_partition = _rates(self._sizes)
        of_topics: dict[str, float] = {}
        for tp, rate in by_partition.items():
            of_topics[tp.topic] = of_topics.get(tp.topic, 0.0) + rate
        self.topic_bytes_per_s = of_topics
        if last is not None and at_ms > last[0]:
            before = last[1]
            grown = sum(max(0, at - before[tp]) for tp, at in now.items() if tp in before)
            bytes_per_s = sum(of_topics.values()) if len(self._sizes) > 1 else None
            self._points.append(Point(at_ms, grown * 1000 / (at_ms - last[0]), bytes_per_s))


def _rates(looks: "deque[tuple[int, dict[TopicPartition, int]]]") -> dict[TopicPartition, float]:
    if len(looks) < 2:
        return {}
    (first_ms, first), (last_ms, last) = looks[0], looks[-1]
    if last_ms <= first_ms:
        return {}
    per_s = 1000 / (last_ms - first_ms)
    return {tp: max(0, at - first[tp]) * per_s for tp, at in last.items() if tp in first}
