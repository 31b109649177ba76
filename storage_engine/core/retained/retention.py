"""Chooses the old segments that a log may delete. The oldest go first, and records that are not
committed stay.

A `DeletionPolicy` decides which segments are old: Kafka's, unless a broker's `log.deletion.policy`
names another. Source: R-LOG9.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class SegmentFacts(NamedTuple):
    """The properties of a segment that a policy may use."""

    next_offset: int
    """Exclusive."""
    size: int
    """In bytes."""
    largest_timestamp_ms: int
    """Largest timestamp of its records, as producers set it; -1 when they have none."""
    written_ms: int
    """When the segment was last written on this machine, by its clock."""
    is_active: bool = False
    """True for the newest segment, which still grows: if it is deleted, an empty one takes its
    place."""


class DeletionLimits(NamedTuple):
    """The settings of a topic, and the time."""

    retention_ms: int
    """-1: no limit."""
    retention_bytes: int
    """-1: no limit."""
    now_ms: int


class DeletionPolicy(Protocol):
    """Decides for one log at a time; it must be quick, since the broker waits for it."""

    def count_deletable(self, segments: Sequence[SegmentFacts], limits: DeletionLimits) -> int:
        """Return how many of `segments`, from the oldest on, are to be deleted. All are committed
        except perhaps the newest, which is included where it has records. A count above what may be
        deleted is lowered.
        """
        ...


class KafkaDeletionPolicy:
    """Deletes by `retention.ms` and `retention.bytes`, as Kafka does."""

    def count_deletable(self, segments: Sequence[SegmentFacts], limits: DeletionLimits) -> int:
        """See `DeletionPolicy`."""
        expired = count_expired(segments, now_ms=limits.now_ms, retention_ms=limits.retention_ms)
        excess = count_excess(segments, retention_bytes=limits.retention_bytes)
        return max(expired, excess)


def count_expired(segments: Sequence[SegmentFacts], *, now_ms: int, retention_ms: int) -> int:
    """Return how many segments from the oldest on have only records older than `retention_ms` (-1:
    no limit).
    """
    if retention_ms < 0:
        return 0
    return _count_while(
        segments,
        # Compaction may leave no records in a segment.
        lambda segment: segment.size == 0 or now_ms - age_begins(segment, now_ms) > retention_ms,
    )


def age_begins(segment: SegmentFacts, now_ms: int) -> int:
    """Return the time from which on the segment's age counts: the timestamp of its newest record,
    or the time of the last write where that timestamp is missing or in the future. One timestamp in
    microseconds would otherwise keep its segment, and with it all that follow, for ever.
    """
    timestamp_ms = segment.largest_timestamp_ms
    return timestamp_ms if 0 <= timestamp_ms <= now_ms else segment.written_ms


def count_excess(segments: Sequence[SegmentFacts], *, retention_bytes: int) -> int:
    """Return how many segments from the oldest on, without the active one, can go so that
    `retention_bytes` (-1: no limit) are left.
    """
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size for segment in segments) - retention_bytes

    def fits(segment: SegmentFacts) -> bool:
        nonlocal excess
        excess -= segment.size
        return excess >= 0 and not segment.is_active

    return _count_while(segments, fits)


def count_allowed(wanted: int, segments: Sequence[SegmentFacts], *, high_watermark: int) -> int:
    """Return the part of a policy's count that may be deleted: no segment with records that are not
    committed."""
    committed = _count_while(segments, lambda segment: segment.next_offset <= high_watermark)
    return max(0, min(wanted, committed))


def _count_while(
    segments: Sequence[SegmentFacts], condition: Callable[[SegmentFacts], bool]
) -> int:
    count = 0
    for segment in segments:
        if not condition(segment):
            break
        count += 1
    return count
