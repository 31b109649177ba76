"""How long a group has been behind: a mark for each partition in which it lags.

A mark is the log's end offset at one look. Once the group has read up to it, the time since then is
how far behind the group was, and the next mark is set; until then it is behind by at least the
mark's age. So one number a partition is enough, whatever timestamps records have.

    log end        e0 ─────────► e1 ─────────►
    mark           e0 at 12:00:00                    e1 at 12:01:30
    committed      c < e0 ………………… c >= e0: it was 90 s behind

The first mark is as old as the first unread record, by the timestamp of its batch: a console that
was just started has no better measure. Nothing here sends requests. Source: R-CON4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from storage_engine.core.ids import TopicPartition

MOST_MARKS = 20_000
MarkKey = tuple[str, TopicPartition]


class GroupReading(NamedTuple):
    """A group's committed offset in a partition, and the partition's end offset for it now."""

    committed: int
    end_offset: int


@dataclass(slots=True)
class _Mark:
    end_offset: int
    set_ms: int
    since_ms: int
    """`set_ms`; for a first mark, the time when the first unread record was written, if earlier."""
    took_ms: int = 0
    """How far behind the group was when it passed the previous mark; 0: there was none."""
    survived: bool = False
    """Whether the mark was not passed at a later look."""
    asked: bool = False
    """Whether the batch at the committed offset was read."""
    only_markers: bool = False
    """Nothing but a transaction's marker is left to read; clients commit the offset before it."""


class GroupMarks:
    """The marks of all groups that a watcher sees."""

    def __init__(self) -> None:
        self._marks: dict[MarkKey, _Mark] = {}

    def note(self, group: str, readings: Mapping[TopicPartition, GroupReading], at_ms: int) -> None:
        """Update the marks of a group with the readings of all its partitions."""
        for tp, reading in readings.items():
            key = group, tp
            mark = self._marks.get(key)
            if reading.committed >= reading.end_offset:
                self._marks.pop(key, None)
            elif mark is None:
                if len(self._marks) < MOST_MARKS:
                    self._marks[key] = _Mark(reading.end_offset, at_ms, at_ms)
            elif mark.only_markers and reading.end_offset > mark.end_offset:
                # Now there are records behind the marker.
                self._marks[key] = _Mark(reading.end_offset, at_ms, at_ms)
            elif reading.committed >= mark.end_offset:
                took_ms = at_ms - mark.set_ms
                self._marks[key] = _Mark(reading.end_offset, at_ms, at_ms, took_ms)
            else:
                mark.survived = True

    def keep_only(self, groups: Iterable[str]) -> None:
        """Forget the marks of groups that are gone."""
        kept = set(groups)
        self._marks = {key: mark for key, mark in self._marks.items() if key[0] in kept}

    def to_ask(self, most: int) -> list[MarkKey]:
        """Return at most `most` marks that may be older than they seem, or cover only markers: the
        first marks, and marks that the next look did not find passed."""
        wanted = [
            key
            for key, mark in self._marks.items()
            if not mark.asked and (mark.survived or not mark.took_ms)
        ]
        return wanted[:most]

    def answered(self, key: MarkKey, written_ms: int | None, *, only_markers: bool) -> None:
        """Record the time of the batch at the committed offset; `written_ms` None: not known."""
        mark = self._marks.get(key)
        if mark is None:
            return
        mark.asked, mark.only_markers = True, only_markers
        if written_ms is not None and not mark.took_ms:
            mark.since_ms = min(mark.since_ms, written_ms)

    def behind_ms(self, group: str, tp: TopicPartition, at_ms: int) -> int:
        """Return how far the group is behind in a partition, in ms; 0: not at all."""
        mark = self._marks.get((group, tp))
        if mark is None or mark.only_markers:
            return 0
        return max(0, at_ms - mark.since_ms, mark.took_ms)

    def is_sure(self, group: str, tp: TopicPartition) -> bool:
        """Whether more than one look has found the group behind."""
        mark = self._marks.get((group, tp))
        return mark is not None and (mark.survived or mark.took_ms > 0)
