"""Which old segments a log may drop. Its one rule: from the oldest on, and nothing that is not
committed.

What counts as old is decided by a `DeletionPolicy`; Kafka's is the one unless a broker's
`log.deletion.policy` names another. Source: R-LOG9.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class SegmentFacts(NamedTuple):
    """A segment, as far as a policy depends on it."""

    next_offset: int
    """Exclusive."""
    size: int
    """In bytes."""
    largest_timestamp_ms: int
    """Largest timestamp of its records, as producers set it; -1 when they have none."""
    written_ms: int
    """When it was last written here, by this machine's clock."""
    is_active: bool = False
    """The newest, which still grows: if it is to go, an empty one takes its place."""


class DeletionLimits(NamedTuple):
    """A topic's settings, and now."""

    retention_ms: int
    """-1: no limit."""
    retention_bytes: int
    """-1: no limit."""
    now_ms: int


class DeletionPolicy(Protocol):
    """Decides for one log at a time; it must be quick, since the broker waits for it."""

    def count_deletable(self, segments: Sequence[SegmentFacts], limits: DeletionLimits) -> int:
        """How many of `segments`, from the oldest on, are to go. All are committed but perhaps the
        newest, which is given with the others where it has records. A count above what may go is
        lowered, never carried out.
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
    """How many segments from the oldest on have only records older than `retention_ms` (-1: no
    limit).
    """
    if retention_ms < 0:
        return 0
    return _count_while(
        segments,
        # Compaction may leave nothing of a segment.
        lambda segment: segment.size == 0 or now_ms - age_begins(segment, now_ms) > retention_ms,
    )


def age_begins(segment: SegmentFacts, now_ms: int) -> int:
    """From when on a segment's age counts: its newest record's time, unless that tells nothing. A
    record without a time, or from the future (often one in microseconds), would otherwise keep its
    segment, and with it all that follow, for ever.
    """
    timestamp_ms = segment.largest_timestamp_ms
    return timestamp_ms if 0 <= timestamp_ms <= now_ms else segment.written_ms


def count_excess(segments: Sequence[SegmentFacts], *, retention_bytes: int) -> int:
    """How many segments from the oldest on, but for the active one, can go so that
    `retention_bytes` (-1: no limit) are still left.
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
    """What of a policy's wish may be carried out: nothing that is not committed goes."""
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
