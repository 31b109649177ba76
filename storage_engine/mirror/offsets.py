"""Which offset of a copy belongs to which offset of its source. Its one rule: a translated offset
never lies behind a record that the reader has not had; where the exact one is not known, it lies
before it, so that some records are read twice and none is left out.

Copies have other offsets: each transaction ends with a marker, in the source as in the target, and
compaction leaves gaps. What was copied is remembered in runs:

    run     source_start .. source_end (exclusive)  ->  target_start, so many `records`

A partition's runs are numbered from 1 on. Run 1 is kept for good. Of the others level n keeps the
last PER_LEVEL whose number is an odd multiple of 2**n, so that the last 2 * PER_LEVEL runs are all
there, and of older ones fewer the older they are: 64 times 20 after a million. A slot is a key of
the compacted topic that remembers them. Source: the idea is that of Kafka's MirrorMaker (KIP-545),
which keeps fewer. Free of IO.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from storage_engine.protocol.records.copied_batches import Span

PER_LEVEL = 64
"""A group that is n runs behind reads at most about n / 64 of them again."""

RUNS_AT_ONCE = 64
"""Of a partition in one transaction; more are joined, and less exact."""

FIRST = 1


class Run(NamedTuple):
    """Records copied in order."""

    source_start: int
    """Offset of the first."""
    source_end: int
    """Exclusive; right behind the last."""
    target_start: int
    records: int
    """As many as there are offsets, or fewer where the source has gaps; in the target, where others
    may write in between, they take as many offsets at least."""

    def translated(self, offset: int) -> int:
        """`offset` is in the run, or anywhere behind it."""
        # So many records at most are not before `offset`.
        left = max(0, self.source_end - offset)
        return self.target_start + max(0, self.records - left)


class Slot(NamedTuple):
    """Where a run is kept until a later one takes the place."""

    level: int
    place: int


def slot_of(number: int) -> Slot:
    """Of run `number`."""
    if number == FIRST:
        return Slot(-1, 0)
    level = (number & -number).bit_length() - 1
    return Slot(level, (number >> (level + 1)) % PER_LEVEL)


class Delivered(NamedTuple):
    """A batch that the target has."""

    base_offset: int
    """-1 where the leader did not tell: a repetition whose first answer was lost."""
    spans: Sequence[Span]


def runs_of(delivered: Iterable[Delivered], *, target_end: int) -> list[Run]:
    """By source offset. `target_end`: no record of them lies before it."""
    runs = []
    for base_offset, spans in sorted(delivered, key=lambda batch: batch.spans[0]):
        for start, row, records in spans:
            target_start = base_offset + row if base_offset >= 0 else target_end
            runs.append(Run(start, start + records, target_start, records))
            target_end = target_start + records
    return runs


def joined(runs: Iterable[Run], limit: int = RUNS_AT_ONCE) -> list[Run]:
    """Neighbours without a gap as one, and then so many more that `limit` are left. `runs`
    ascend."""
    found: list[Run] = []
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


def _follows(last: Run, run: Run) -> bool:
    return (
        last.source_end == run.source_start
        and last.target_start + last.records == run.target_start
        and _is_dense(last)
        and _is_dense(run)
    )


def _is_dense(run: Run) -> bool:
    return run.records == run.source_end - run.source_start


def _both(first: Run, second: Run) -> Run:
    return Run(
        first.source_start, second.source_end, first.target_start, first.records + second.records
    )


class OffsetMap:
    """The runs of one partition that are kept."""

    __slots__ = ("_kept", "_sorted", "count")

    def __init__(self) -> None:
        self.count = 0
        """Of the runs there have been."""
        self._kept: dict[Slot, tuple[int, Run]] = {}
        self._sorted: list[Run] | None = None

    def put(self, number: int, run: Run) -> None:
        """In any order; a later run of the same slot stays."""
        slot = slot_of(number)
        before = self._kept.get(slot)
        if before is None or before[0] <= number:
            self._kept[slot] = (number, run)
            self._sorted = None
        self.count = max(self.count, number)

    def translate(self, offset: int) -> int | None:
        """Of the next record to read; None when nothing was copied."""
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
        """Behind the last record; 0 when nothing was copied."""
        _, last = max(self._kept.values(), default=(0, Run(0, 0, 0, 0)))
        return last.target_start + last.records

    def __len__(self) -> int:
        return len(self._kept)
