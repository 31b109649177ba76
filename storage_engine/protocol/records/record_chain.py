"""The beginning and end of each record of some batches, found for all of them at once.

A record starts with a varint of its length, so that record i determines where i + 1 starts: a chain
that seems to need a loop. Many small batches of wide records are followed together, the n-th record
of all in each round. Else all starts are guessed at once, and those that prove right are kept.

1. The attributes byte, 0, follows the length. Every 0 behind bytes that can be a length is taken
   for it: first those behind a length of as many bytes as the average record's, and if their chain
   is not proven, those behind any. So every true start is among the candidates in the end.
2. Each candidate names the start of the next. One whose successor is no candidate, or that is
   nobody's successor, is dropped.
3. If every candidate's successor is the next candidate, the chain is proven. Else those that the
   chain passes are marked by doubling: 1, 2, 4, … records ahead of the first start.

The chain begins at a batch's first byte and follows lengths only, so nothing false survives it.
Where it breaks (damage; a length with needless bytes or attributes other than 0, which no client
writes) a plain walk says what is wrong, or reads the records.

Source: the record format of the Kafka protocol. Measurements: DESIGN.md of this package.
"""

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
    varint_size,
)

LEAST_BODY_BYTES = 6
"""The least size of a record without its length: a byte each for attributes, timestamp and offset
delta, key and value length, header count."""
LEAST_RECORD_BYTES = 1 + LEAST_BODY_BYTES

_ROUND_BYTES = 24_000
"""A round over all batches costs as much as to look at so many bytes for candidates."""

_PIECE_BYTES = 1 << 16
"""Candidates are looked for in pieces, so that the processor's caches hold them, and their memory
is used again: what is larger has fresh pages each time."""

_NO_PLACES = np.zeros(0, np.int64)

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
    if len(starts) == 1 and counts[0] > 1 and _differ(source.data, int(starts[0]), int(stops[0])):
        return None
    try:
        first_lengths, _ = read_column(source, starts, stops)
    except DamagedVarintError:
        return None
    if (first_lengths < LEAST_BODY_BYTES).any() or (first_lengths > stops - starts).any():
        return None
    size = _record_sizes(first_lengths)
    expected = size * counts
    most = int(counts.max())
    for extra, first in enumerate(_OFFSET_DELTA_GROWS_AT, start=1):
        if most <= first:
            break
        grown = _record_sizes(first_lengths + extra)
        expected += (grown - size) * np.maximum(counts - first, 0)
        size = grown
    if (expected != stops - starts).any():
        return None
    row_ends = np.cumsum(counts)
    row = np.arange(int(row_ends[-1])) - np.repeat(row_ends - counts, counts)
    lengths = np.repeat(first_lengths, counts)
    for first in _OFFSET_DELTA_GROWS_AT:
        if most > first:
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


def _differ(view: memoryview, start: int, stop: int) -> bool:
    """Whether the first two records of a region have different lengths, or one of them has none."""
    one = read_varint(view, start, stop)
    two = None if one is None or one[0] < 0 else read_varint(view, sum(one), stop)
    return one is None or two is None or one[0] != two[0]


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
    count = int(regions.counts.sum())
    likely = _length_bytes(len(source) // count)
    every = range(1, _length_bytes(len(source)) + 1)
    for sizes in (range(likely, likely + 1), every):
        found = _chain_of([_candidates(source, size) for size in sizes], len(source), regions)
        if found is not None:
            return found
    return None


def _chain_of(
    candidates: "list[_Candidates]", end: int, regions: RecordRegions
) -> RecordSpans | None:
    links = _joined([_linked(part, regions, end) for part in candidates])
    chain = _chain(_without_dead_ends(links, regions, end), int(regions.starts[0]), end)
    if chain is None:
        return None
    firsts = np.searchsorted(chain.starts, regions.starts)
    if not np.array_equal(np.diff(firsts, append=len(chain.starts)), regions.counts):
        return None
    return RecordSpans(chain.bodies, chain.stops)


def _length_bytes(length: int) -> int:
    """Return the bytes that a record's length takes."""
    return min(varint_size(length), VARINT_BYTES)


class _Candidates(NamedTuple):
    """Places that can be read as a length and attributes of 0, by ascending start."""

    starts: Ints
    bodies: Ints
    stops: Ints


def _candidates(source: Bytes, size: int) -> _Candidates:
    """Return all candidates whose length takes so many bytes."""
    places = [
        _places(source[at : at + _PIECE_BYTES + size], size) + at
        for at in range(0, len(source) - size, _PIECE_BYTES)
    ]
    starts = places[0] if len(places) == 1 else np.concatenate(places or [_NO_PLACES])
    lengths = source[starts].astype(np.int64)
    lengths &= 0x7F
    for index in range(1, size):
        lengths |= (source[starts + index] & 0x7F).astype(np.int64) << (7 * index)
    # Zigzag: lengths are even.
    possible = (lengths & 1) == 0
    lengths >>= 1
    possible &= lengths >= LEAST_BODY_BYTES
    if not possible.all():
        starts, lengths = starts[possible], lengths[possible]
    bodies = starts + size
    return _Candidates(starts, bodies, bodies + lengths)


def _places(source: Bytes, size: int) -> Ints:
    """Return where a varint of so many bytes may begin that is not 0 and before a byte of 0."""
    found = source[size:] == 0
    found &= source[size - 1 : -1].view(np.int8) > 0
    for before in range(2, size + 1):
        found &= source[size - before : -before].view(np.int8) < 0
    return np.flatnonzero(found)


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


def _without_dead_ends(links: _Links, regions: RecordRegions, end: int) -> _Links:
    """Return the candidates that have a successor, and that are one or begin a region."""
    starts = links.starts
    if not len(starts):
        return links
    next_ones = np.searchsorted(starts, links.successors)
    np.minimum(next_ones, len(starts) - 1, out=next_ones)
    has_one = starts[next_ones] == links.successors
    is_one = np.zeros(len(starts), np.bool_)
    is_one[next_ones[has_one]] = True
    firsts = np.searchsorted(starts, regions.starts)
    is_one[np.minimum(firsts, len(starts) - 1)] = True
    has_one |= links.successors == end
    return _select(links, has_one & is_one)


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
