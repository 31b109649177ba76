"""Translates offsets of a source into offsets of its copy. This module does no IO.

A translated offset never lies behind a record that the reader has not read. Where the exact offset
is not known, the translated one lies before it, so that some records are read twice and none is
skipped.

A copy has other offsets than its source: each transaction ends with a marker, in the source as in
the target, and compaction leaves gaps. Runs of offsets record what was copied:

    run     source_start .. source_end (exclusive)  ->  target_start, so many `records`

The runs of a partition are numbered from 1 on, and run 1 is kept for good. Of the others, level n
keeps the last PER_LEVEL whose number is an odd multiple of 2**n. So the last 2 * PER_LEVEL runs are
all kept, and of older runs the fewer the older they are: 64 times 20 after a million. A slot is a
key of the compacted topic that holds the runs. Source: the idea is that of Kafka's MirrorMaker
(KIP-545), which keeps fewer.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from storage_engine.protocol.records.copied_batches import Span

PER_LEVEL = 64
"""A group that is n runs behind reads about n / 64 of them again, at most."""

RUNS_AT_ONCE = 64
"""The most runs that one transaction keeps of a partition; more are joined, and less exact."""

FIRST = 1


class OffsetRun(NamedTuple):
    """Records that were copied in order."""

    source_start: int
    """The offset of the first record."""
    source_end: int
    """Exclusive."""
    target_start: int
    records: int
    """As many as there are offsets, or fewer where the source has gaps. In the target, where others
    may write in between, they take at least as many offsets."""

    def translated(self, offset: int) -> int:
        """The offset in the target; `offset` is in the run, or anywhere behind it."""
        # So many records at most are not before `offset`.
        left = max(0, self.source_end - offset)
        return self.target_start + max(0, self.records - left)


class Slot(NamedTuple):
    """The place of a run, until a later run takes it."""

    level: int
    place: int


def slot_of(number: int) -> Slot:
    """The place of the run with that number."""
    if number == FIRST:
        return Slot(-1, 0)
    level = (number & -number).bit_length() - 1
    return Slot(level, (number >> (level + 1)) % PER_LEVEL)


class DeliveredBatch(NamedTuple):
    """A batch that the target has appended."""

    base_offset: int
    """-1 where the leader did not say: the batch was a repetition, whose first answer was lost."""
    spans: Sequence[Span]


def runs_of(delivered: Iterable[DeliveredBatch], *, target_end: int) -> list[OffsetRun]:
    """The runs of these batches, by source offset. In the target none of their records lies before
    `target_end`."""
    runs = []
    for base_offset, spans in sorted(delivered, key=lambda batch: batch.spans[0]):
        for start, row, records in spans:
            target_start = base_offset + row if base_offset >= 0 else target_end
            runs.append(OffsetRun(start, start + records, target_start, records))
            target_end = target_start + records
    return runs


def joined(runs: Iterable[OffsetRun], limit: int = RUNS_AT_ONCE) -> list[OffsetRun]:
    """Join neighbours that have no gap between them, and then others until at most `limit` runs are
    left. `runs` ascend."""
    found: list[OffsetRun] = []
    for run in runs:
        last = found[-1] if found else None
        if last is not None and _follows(last, run):
            found[-1] = _both(last, run)
        else:
            found.append(run)
    while len(found) > limit:
        pairs = [found[i : i + 2] for i in range(0, len(found), 2)]
        found = [_both(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return found


def _follows(last: OffsetRun, run: OffsetRun) -> bool:
    return (
        last.source_end == run.source_start
        and last.target_start + last.records == run.target_start
        and _is_dense(last)
        and _is_dense(run)
    )


def _is_dense(run: OffsetRun) -> bool:
    return run.records == run.source_end - run.source_start


def _both(first: OffsetRun, second: OffsetRun) -> OffsetRun:
    return OffsetRun(
        first.source_start, second.source_end, first.target_start, first.records + second.records
    )


class OffsetMap:
    """The runs that are kept of one partition."""

    __slots__ = ("_kept", "_sorted", "count")

    def __init__(self) -> None:
        self.count = 0
        """The number of runs that there have been."""
        self._kept: dict[Slot, tuple[int, OffsetRun]] = {}
        self._sorted: list[OffsetRun] | None = None

    def put(self, number: int, run: OffsetRun) -> None:
        """Keep a run, unless a later run has its slot already."""
        slot = slot_of(number)
        before = self._kept.get(slot)
        if before is None or before[0] <= number:
            self._kept[slot] = (number, run)
            self._sorted = None
        self.count = max(self.count, number)

    def translate(self, offset: int) -> int | None:
        """Translate the offset of the next record to read; None when nothing was copied."""
        if self._sorted is None:
            self._sorted = [run for _, run in sorted(self._kept.values())]
        runs = self._sorted
        if not runs:
            return None
        index = bisect_right(runs, offset, key=lambda run: run.source_start) - 1
        # Before all: the first record that was copied is the first that is there.
        return runs[index].translated(offset) if index >= 0 else runs[0].target_start

    @property
    def target_end(self) -> int:
        """The end offset in the target; 0 when nothing was copied."""
        _, last = max(self._kept.values(), default=(0, OffsetRun(0, 0, 0, 0)))
        return last.target_start + last.records

    def __len__(self) -> int:
        return len(self._kept)
