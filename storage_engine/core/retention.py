"""Which old segments a log may drop. Its one rule: from the oldest on, and nothing that is not
committed.

Source: R-LOG9.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class SegmentFacts(NamedTuple):
    """What retention needs to know of a segment."""

    next_offset: int
    size: int
    largest_timestamp_ms: int
    """-1 when its records have no time."""


def count_expired(
    segments: Sequence[SegmentFacts], *, now_ms: int, retention_ms: int, high_watermark: int
) -> int:
    """How many segments from the oldest on have only records older than `retention_ms` (-1: no
    limit).
    """
    if retention_ms < 0:
        return 0
    return _count_while(
        segments,
        high_watermark,
        lambda segment: (
            # Compaction may leave nothing of a segment.
            segment.size == 0
            or (
                segment.largest_timestamp_ms >= 0
                and now_ms - segment.largest_timestamp_ms > retention_ms
            )
        ),
    )


def count_excess(
    segments: Sequence[SegmentFacts], *, retention_bytes: int, high_watermark: int
) -> int:
    """How many segments from the oldest on can go so that `retention_bytes` (-1: no limit) are
    still left.
    """
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size for segment in segments) - retention_bytes

    def fits(segment: SegmentFacts) -> bool:
        nonlocal excess
        excess -= segment.size
        return excess >= 0

    return _count_while(segments, high_watermark, fits)


def _count_while(
    segments: Sequence[SegmentFacts], high_watermark: int, condition: Callable[[SegmentFacts], bool]
) -> int:
    count = 0
    for segment in segments:
        if segment.next_offset > high_watermark or not condition(segment):
            break
        count += 1
    return count
