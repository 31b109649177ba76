"""Which row groups of a table hold which offsets, and which of them one task reads. Pure.

A row group holds rows of several partitions, so a slice is a range of offsets of each of them: a
row group is read once, and not once for each partition. Slices are ranges of offsets and not of
files, so that what is left of one can be read from another version of the table.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

PartitionValue = str | int | bool | None
"""A value by which files are divided; days of a date are whole numbers."""


class OffsetSpan(NamedTuple):
    """Offsets of one partition."""

    low: int
    high: int
    """Inclusive."""
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A part of a file that is read as a whole."""

    path: str
    number: int
    size_bytes: int
    """Before compression."""
    spans: Mapping[int, OffsetSpan]
    """By partition, those that it has rows of."""
    values: Mapping[str, PartitionValue] = field(default_factory=dict)
    """The values of columns that are not in the file."""

    @property
    def place(self) -> tuple[str, int]:
        return self.path, self.number


Wanted = Mapping[int, tuple[int, int]]
"""By partition, the first offset and the one behind the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSlice:
    """The part of a table that one task reads."""

    wanted: Wanted
    groups: tuple[RowGroup, ...]
    """The row groups that hold rows of it, in the order in which they are read."""

    @property
    def offsets(self) -> int:
        return sum(end - start for start, end in self.wanted.values())


def plan_slices(
    groups: Iterable[RowGroup],
    wanted: Wanted,
    *,
    target_bytes: int,
    most_offsets: int | None = None,
) -> list[TableSlice]:
    """Return slices in which each wanted offset that a row group holds is once. Cuts lie between
    row groups where these follow one another. `most_offsets`: of a slice."""
    wanted = {each: (start, end) for each, (start, end) in wanted.items() if start < end}
    there = _in_order([each for each in groups if _share(each, wanted)], wanted)
    cuts = _cuts(there, wanted, target_bytes)
    of_slice: list[list[RowGroup]] = [[] for _ in cuts]
    by_partition = {each: [cut[each] for cut in cuts] for each in wanted}
    for group in there:
        for number in _slices_of(group, wanted, by_partition):
            of_slice[number].append(group)
    slices = []
    before = {each: start for each, (start, _) in wanted.items()}
    for cut, held in zip(cuts, of_slice, strict=True):
        part = {each: (before[each], cut[each]) for each in wanted if before[each] < cut[each]}
        before = cut
        if held and part:
            slices += _bounded(TableSlice(wanted=part, groups=tuple(held)), most_offsets)
    return slices


def watermarks(groups: Sequence[RowGroup]) -> list[dict[int, int]]:
    """Return for each group, by partition, the first offset that the groups behind it may hold:
    rows below it that were read are in order. A partition of which they hold nothing is missing."""
    found: list[dict[int, int]] = []
    lowest: dict[int, int] = {}
    for group in reversed(groups):
        found.append(dict(lowest))
        for partition, span in group.spans.items():
            lowest[partition] = min(lowest.get(partition, span.low), span.low)
    return found[::-1]


def _in_order(groups: Iterable[RowGroup], wanted: Wanted) -> list[RowGroup]:
    """Sort by how far into the wanted offsets a group begins, so that few have to be held."""

    def begin(group: RowGroup) -> tuple[float, float, tuple[str, int]]:
        parts = [
            _parts(span, *wanted[each]) for each, span in group.spans.items() if each in wanted
        ]
        return min(low for low, _ in parts), max(high for _, high in parts), group.place

    return sorted(groups, key=begin)


def _parts(span: OffsetSpan, start: int, end: int) -> tuple[float, float]:
    return (span.low - start) / (end - start), (span.high - start) / (end - start)


def _share(group: RowGroup, wanted: Wanted) -> float:
    """Return which part of the group's rows is wanted, as an estimate; 0 only if none can be."""
    rows = 0.0
    for partition, span in group.spans.items():
        start, end = wanted.get(partition, (0, 0))
        common = min(end, span.high + 1) - max(start, span.low)
        if common > 0:
            rows += span.rows * common / (span.high + 1 - span.low)
    return rows / sum(span.rows for span in group.spans.values())


def _cuts(groups: Iterable[RowGroup], wanted: Wanted, target_bytes: int) -> list[dict[int, int]]:
    """Return the ends of each slice, of which none lies before the one before it."""
    cuts: list[dict[int, int]] = []
    reached = {each: start for each, (start, _) in wanted.items()}
    held = 0.0
    for group in groups:
        share = _share(group, wanted) * group.size_bytes
        if held and held + share > target_bytes:
            cuts.append(dict(reached))
            held = 0.0
        held += share
        for partition, span in group.spans.items():
            if partition in wanted:
                end = min(span.high + 1, wanted[partition][1])
                reached[partition] = max(reached[partition], end)
    return [*cuts, {each: end for each, (_, end) in wanted.items()}]


def _slices_of(group: RowGroup, wanted: Wanted, cuts: Mapping[int, Sequence[int]]) -> Iterable[int]:
    """Return the numbers of the slices that may have rows of the group, ascending."""
    found: set[int] = set()
    for partition, span in group.spans.items():
        if partition not in wanted:
            continue
        start, end = wanted[partition]
        low, high = max(span.low, start), min(span.high, end - 1)
        if low <= high:
            ends = cuts[partition]
            found.update(range(bisect_right(ends, low), bisect_right(ends, high) + 1))
    return sorted(found)


def _bounded(whole: TableSlice, most_offsets: int | None) -> list[TableSlice]:
    """Cut a slice that has more offsets than it may into ranges of single partitions."""
    if most_offsets is None or whole.offsets <= most_offsets:
        return [whole]
    found = []
    for partition, (start, end) in sorted(whole.wanted.items()):
        pieces = -(-(end - start) // most_offsets)
        bounds = [start + (end - start) * each // pieces for each in range(pieces + 1)]
        for first, last in pairwise(bounds):
            part = {partition: (first, last)}
            held = tuple(each for each in whole.groups if _share(each, part))
            if held:
                found.append(TableSlice(wanted=part, groups=held))
    return found
