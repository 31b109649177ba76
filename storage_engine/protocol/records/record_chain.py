"""The beginning and end of each record of some batches, found for all of them at once.

A record starts with a varint of its length, so that record i determines where i + 1 starts: a chain
that seems to need a loop. Many small batches of wide records are followed together, the n-th record
of all in each round. Else all starts are guessed at once, and those that prove right are kept.

1. The attributes byte, 0, follows the length. Every 0 behind a byte that can end a length is taken
   for it, and the length is read backwards. So every true start is among the candidates.
2. Each candidate names the start of the next. One whose successor is no candidate, or that is
   nobody's successor, is dropped.
3. If every candidate's successor is the next candidate, the chain is proven. Else those that the
   chain passes are marked by doubling: 1, 2, 4, … records ahead of the first start.

The chain begins at a batch's first byte and follows lengths only, so nothing false survives it.
Where it breaks (damage; a length with needless bytes or attributes other than 0, which no client
writes) a plain walk says what is wrong, or reads the records.

Source: the record format of the Kafka protocol. Measurements: DESIGN.md of this package.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage_engine.protocol.records.control_record import read_varint
from storage_engine.protocol.records.varints import (
    VARINT_BYTES,
    Bytes,
    DamagedVarintError,
    Ints,
    read_column,
)

LEAST_BODY_BYTES = 6
"""The least size of a record without its length: a byte each for attributes, timestamp and offset
delta, key and value length, header count."""
LEAST_RECORD_BYTES = 1 + LEAST_BODY_BYTES

_ROUND_BYTES = 24_000
"""A round over all batches costs as much as to look at so many bytes for candidates."""

_OFFSET_DELTA_GROWS_AT = (1 << 6, 1 << 13, 1 << 20, 1 << 27)
"""The row numbers from which on a zigzag varint takes a byte more."""


class RecordSpans(NamedTuple):
    """Half-open byte ranges of records, without their length varint; batch by batch, in order."""

    bodies: Ints
    stops: Ints


class RecordRegions(NamedTuple):
    """The place of each batch's records in one buffer, ascending, and the number of records."""

    starts: Ints
    stops: Ints
    counts: Ints


class BrokenChainError(ValueError):
    """Batch `region` does not hold the records that its header claims."""

    def __init__(self, region: int, record: int, reason: str) -> None:
        super().__init__(reason)
        self.region = region
        self.record = record
        self.reason = reason


def find_records(source: Bytes, regions: RecordRegions) -> RecordSpans:
    """Return the records of all `regions`, none of which is empty; BrokenChainError for a damaged
    one."""
    found = _find_by_size(source, regions)
    if found is None:
        rounds = int(regions.counts.max())
        is_wide = rounds * _ROUND_BYTES < len(source)
        find = _find_in_rounds if is_wide else _find_by_candidates
        found = find(source, regions)
    return _walk_all(source, regions) if found is None else found


def _find_by_size(source: Bytes, regions: RecordRegions) -> RecordSpans | None:
    """Find records of equal size except for their offset deltas; return None when they are not."""
    starts, stops, counts = regions
    try:
        first_lengths, _ = read_column(source, starts, stops)
    except DamagedVarintError:
        return None
    if (first_lengths < LEAST_BODY_BYTES).any() or (first_lengths > stops - starts).any():
        return None
    size = _record_sizes(first_lengths)
    expected = size * counts
    for extra, first in enumerate(_OFFSET_DELTA_GROWS_AT, start=1):
        grown = _record_sizes(first_lengths + extra)
        expected += (grown - size) * np.maximum(counts - first, 0)
        size = grown
    if (expected != stops - starts).any():
        return None
    row_ends = np.cumsum(counts)
    row = np.arange(int(row_ends[-1])) - np.repeat(row_ends - counts, counts)
    lengths = np.repeat(first_lengths, counts)
    for first in _OFFSET_DELTA_GROWS_AT:
        if int(counts.max()) > first:
            lengths += row >= first
    sizes = _record_sizes(lengths)
    ends = np.cumsum(sizes)
    region_sizes = stops - starts
    ends += np.repeat(starts - (np.cumsum(region_sizes) - region_sizes), counts)
    try:
        found, bodies = read_column(source, ends - sizes, ends)
    except DamagedVarintError:
        return None
    return RecordSpans(bodies, ends) if np.array_equal(found, lengths) else None


def _record_sizes(lengths: Ints) -> Ints:
    """Return the sizes of records of these lengths, including their length varint."""
    sizes = lengths + 1
    for size in range(1, VARINT_BYTES):
        sizes += lengths >= 1 << (7 * size - 1)
    return sizes


def _find_in_rounds(source: Bytes, regions: RecordRegions) -> RecordSpans | None:
    """Find the n-th record of all regions in the n-th round; return None for a damaged one."""
    counts = regions.counts
    rows = np.cumsum(counts) - counts
    total = int(counts.sum())
    bodies, ends = np.empty(total, np.int64), np.empty(total, np.int64)
    at, stops = regions.starts, regions.stops
    for number in range(1, int(counts.max()) + 1):
        try:
            lengths, found = read_column(source, at, stops)
        except DamagedVarintError:
            return None
        at = found + lengths
        if (lengths < LEAST_BODY_BYTES).any():
            return None
        bodies[rows], ends[rows] = found, at
        # One that ends outside of its region is found here, or as the place of the next one.
        is_last = counts == number
        if is_last.any():
            if (at[is_last] != stops[is_last]).any():
                return None
            more = ~is_last
            at, stops, rows, counts = at[more], stops[more], rows[more], counts[more]
        rows = rows + 1
    return RecordSpans(bodies, ends)


def _find_by_candidates(source: Bytes, regions: RecordRegions) -> RecordSpans | None:
    """Find the records by candidates; return None when these don't prove the chain."""
    end = len(source)
    parts = [_linked(part, regions, end) for part in _candidates(source)]
    links = _joined(_without_dead_ends(parts, regions, end))
    chain = _chain(links, int(regions.starts[0]), end)
    if chain is None:
        return None
    firsts = np.searchsorted(chain.starts, regions.starts)
    if not np.array_equal(np.diff(firsts, append=len(chain.starts)), regions.counts):
        return None
    return RecordSpans(chain.bodies, chain.stops)


class _Candidates(NamedTuple):
    """Places that can be read as a length and attributes of 0, by ascending start."""

    starts: Ints
    bodies: Ints
    stops: Ints


def _candidates(source: Bytes) -> Iterator[_Candidates]:
    """Yield all candidates, by the number of bytes of their length varint."""
    ends_length = source[:-1].view(np.int8) > 0
    ends_length &= source[1:] == 0
    bodies = np.flatnonzero(ends_length) + 1
    encoded = source[bodies - 1].astype(np.int64)
    for size in range(1, VARINT_BYTES + 1):
        # Zigzag: lengths are even. A byte before with the top bit may be a part of the length.
        possible = (encoded & 1) == 0
        possible &= encoded >= 2 * LEAST_BODY_BYTES
        rows = np.flatnonzero(possible)
        lengths = encoded[rows] >> 1
        yield _Candidates(bodies[rows] - size, bodies[rows], bodies[rows] + lengths)
        before = source[bodies - size - 1]
        continued = before >= 0x80
        if len(bodies) and bodies[0] <= size:
            continued &= bodies > size
        rows = np.flatnonzero(continued)
        if not len(rows):
            return
        bodies = bodies[rows]
        encoded = (encoded[rows] << 7) | (before[rows] & 0x7F)


class _Links(NamedTuple):
    """Candidates, and the start of the record after each: it may be in the next region, and is the
    end of the source after the last."""

    starts: Ints
    bodies: Ints
    stops: Ints
    successors: Ints


def _linked(found: _Candidates, regions: RecordRegions, end: int) -> _Links:
    """Return the candidates that end within their region."""
    if len(regions.starts) == 1:
        region_stops: Ints | int = int(regions.stops[0])
        next_starts: Ints | int = end
    else:
        counts = np.diff(np.searchsorted(found.starts, regions.starts[1:]), prepend=0)
        counts = np.append(counts, len(found.starts) - counts.sum())
        region_stops = np.repeat(regions.stops, counts)
        next_starts = np.repeat(np.append(regions.starts[1:], end), counts)
    successors = np.where(found.stops == region_stops, next_starts, found.stops)
    return _select(_Links(*found, successors), found.stops <= region_stops)


def _without_dead_ends(parts: list[_Links], regions: RecordRegions, end: int) -> list[_Links]:
    """Return the candidates that have a successor, and that are one or begin a region."""
    is_start = np.zeros(end + 1, np.bool_)
    is_start[end] = True
    is_successor = np.zeros(end + 1, np.bool_)
    is_successor[regions.starts] = True
    for part in parts:
        is_start[part.starts] = True
        is_successor[part.successors] = True
    return [_select(part, is_start[part.successors] & is_successor[part.starts]) for part in parts]


def _joined(parts: list[_Links]) -> _Links:
    """Join all links into one, by ascending start."""
    filled = [part for part in parts if len(part.starts)] or parts[:1]
    if len(filled) == 1:
        return filled[0]
    joined = _Links(*(np.concatenate(columns) for columns in zip(*filled, strict=True)))
    order = np.argsort(joined.starts, kind="stable")
    return _Links(*(column[order] for column in joined))


def _select(links: _Links, wanted: npt.NDArray[np.bool_]) -> _Links:
    return links if wanted.all() else _Links(*(column[wanted] for column in links))


def _chain(links: _Links, first: int, end: int) -> _Links | None:
    """Return the links from the start `first` to `end`; None when they don't get there."""
    starts, successors = links.starts, links.successors
    if not len(starts) or starts[0] != first:
        return None
    if successors[-1] == end and np.array_equal(successors[:-1], starts[1:]):
        return links
    passed = _passed(starts, successors, end)
    return None if passed is None else _select(links, passed)


def _passed(starts: Ints, successors: Ints, end: int) -> npt.NDArray[np.bool_] | None:
    """Return which of `starts` the chain from the first passes, by doubling; None when it
    breaks."""
    count = len(starts)
    at_end, lost = count, count + 1
    jump = np.searchsorted(starts, successors)
    jump[starts[np.minimum(jump, count - 1)] != successors] = lost
    jump[successors == end] = at_end
    jump = np.append(jump, (at_end, lost))
    passed = np.zeros(count + 2, np.bool_)
    passed[0] = True
    for _ in range(count.bit_length()):
        passed[jump[passed]] = True
        if passed[at_end]:
            break
        jump = jump[jump]
    return passed[:count] if passed[at_end] else None


def _walk_all(source: Bytes, regions: RecordRegions) -> RecordSpans:
    """Find the records length by length, for encodings that no client writes; the error names the
    first damage."""
    total = int(regions.counts.sum())
    bodies = np.empty(total, np.int64)
    stops = np.empty(total, np.int64)
    view = source.data
    row = 0
    for region, (start, stop, count) in enumerate(
        zip(*map(np.ndarray.tolist, regions), strict=True)
    ):
        position = start
        for record in range(count):
            read = read_varint(view, position, stop)
            if read is None:
                raise BrokenChainError(region, record, "its length is cut off or too long")
            length, body = read
            if length < LEAST_BODY_BYTES or length > stop - body:
                raise BrokenChainError(
                    region,
                    record,
                    f"its length is {length}, {stop - body} bytes are left in the batch",
                )
            position = body + length
            bodies[row] = body
            stops[row] = position
            row += 1
        if position != stop:
            raise BrokenChainError(
                region, count, f"the batch says {count} records, {stop - position} bytes come after"
            )
    return RecordSpans(bodies, stops)
