"""Finds the bytes of a read: whole batches of one segment, never beyond the bound.

Source: R-LOG3.
"""

from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.read_positions import ReadPositions
from storage_engine.log.segments.segment_slice import SegmentSlice


def find_slice(
    positions: ReadPositions,
    segments: tuple[LogSegment, ...],
    number: int,
    offset: int,
    *,
    max_bytes: int,
    limit: int,
    at_least_one: bool,
    wait: bool = True,
) -> SegmentSlice | None:
    """Return the batches from `offset`, which lies in segment `number`, to `limit` (exclusive) at
    most; None when nothing fits. `positions` has the ends of recent reads.

    ColdBytesError when finding them would have to wait for the medium, unless `wait`.
    """
    while True:
        segment = segments[number]
        if segment.base_offset >= limit:
            return None
        start = _start(positions, segment, offset, wait)
        if start < segment.size:
            break
        number += 1
        if number == len(segments):
            return None
    bound, bound_offset = _bound(positions, segment, limit, wait)
    if bound <= start:
        return None
    if bound - start <= max_bytes:
        end, end_offset = bound, bound_offset
    else:
        end, end_offset = segment.boundary_at_or_before(start + max_bytes, start, wait=wait)
        if end == start:
            if not at_least_one:
                return None
            header = next(segment.scan(start, wait=wait))[1]
            end, end_offset = start + header.size_in_bytes, header.next_offset
    positions.put(segment, end_offset, end)
    return SegmentSlice(segment, start, end - start, offset, end_offset)


def _start(positions: ReadPositions, segment: LogSegment, offset: int, wait: bool) -> int:
    """Return the position of the first batch that ends at or after `offset`; the segment's size
    when there is none.
    """
    if offset <= segment.base_offset:
        return 0
    position = positions.get(segment, offset)
    if position is not None:
        return position
    found = segment.find(offset, wait=wait)
    return segment.size if found is None else found[0]


def _bound(
    positions: ReadPositions, segment: LogSegment, limit: int, wait: bool
) -> tuple[int, int]:
    """Return where the batches below `limit` end, and the offset of the next read."""
    if segment.next_offset <= limit:
        return segment.size, segment.next_offset
    position = positions.get(segment, limit)
    if position is not None:
        return position, limit
    found = segment.find(limit, wait=wait)
    if found is None:
        return segment.size, segment.next_offset
    position, header = found
    if header.base_offset < limit:
        return position, header.base_offset
    positions.put(segment, limit, position)
    return position, limit
