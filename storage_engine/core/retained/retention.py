"""Which old segments a log may delete, and which records compaction removes. The oldest segments go
first, by a `DeletionPolicy`, and records that are not committed stay. A record is removed only when
a newer one of its key, which can no longer be lost, has replaced it.

    |<---------- clean ---------->|<------ dirty ------>|<-- not yet -->|<- active ->|
    log start          first dirty offset      first uncleanable offset        log end

A pass collects the newest offset of every key between the first dirty offset and its own end, then
reads the log from its start and drops older records. Records are not yet cleaned at or above the
high watermark (they may be truncated) or the last stable offset (their transactions may still end
either way), while they are not on the medium, while they are younger than
`min.compaction.lag.ms`, and in the active segment.

Records of aborted transactions are removed, whatever their keys. The marker of a transaction stays
until a pass finds no batch of it, even an empty one that only keeps its producer's sequence (the
transaction would be open again), and `delete.retention.ms` after that. A tombstone (a key without a
value) stays until `delete.retention.ms` after the pass that first kept it, so that a consumer that
reads from the start within that time learns of the deletion. Source: R-LOG9, R-LOG10, KIP-58
(lags), KIP-98 (transactions), KIP-354 (maximum lag), KIP-534 (delete horizon).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage_engine.core.retained.producer_table import AbortedTransaction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class SegmentFacts(NamedTuple):
    """The properties of a segment that a policy may use."""

    next_offset: int
    """Exclusive."""
    size: int
    """In bytes."""
    largest_timestamp_ms: int
    """Largest timestamp of its records, as producers set it; -1 when they have none."""
    written_ms: int
    """The time of the segment's last write on this machine, by its clock."""
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


NO_HORIZON = -1


class SegmentSpan(NamedTuple):
    """A segment, as far as the decisions depend on it."""

    base_offset: int
    next_offset: int
    """Base offset of the following segment: offsets may be missing before it."""
    size: int
    largest_timestamp_ms: int
    """The largest timestamp; -1 when its records have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRules:
    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    delete_retention_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """A pass that is due. Invariant: first_dirty_offset < first_uncleanable_offset."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    dirty_ratio: float
    is_overdue: bool
    """True when `max.compaction.lag.ms` demands it, whatever the ratio."""

    @property
    def urgency(self) -> tuple[bool, float]:
        """The order of plans: the largest value comes first."""
        return self.is_overdue, self.dirty_ratio


def plan_compaction(
    closed: Sequence[SegmentSpan],
    *,
    first_dirty_offset: int,
    safe_offset: int,
    first_dirty_timestamp_ms: int,
    rules: CompactionRules,
    now_ms: int,
) -> CompactionPlan | None:
    """Return the pass that is due, or None. `closed` are all segments but the active one.

    Everything below `safe_offset` is committed and on the medium; `first_dirty_timestamp_ms` is the
    time of the first dirty batch (-1: unknown).
    """
    clean_bytes = dirty_bytes = 0
    first_uncleanable = first_dirty_offset
    for segment in closed:
        if segment.next_offset <= first_dirty_offset:
            clean_bytes += segment.size
            continue
        if segment.next_offset > safe_offset or _is_too_young(segment, rules, now_ms):
            break
        dirty_bytes += segment.size
        first_uncleanable = segment.next_offset
    if not dirty_bytes:
        return None
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    overdue = is_overdue(first_dirty_timestamp_ms, rules, now_ms)
    if not overdue and ratio <= rules.min_dirty_ratio:
        return None
    return CompactionPlan(
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=first_uncleanable,
        dirty_ratio=ratio,
        is_overdue=overdue,
    )


def _is_too_young(segment: SegmentSpan, rules: CompactionRules, now_ms: int) -> bool:
    return rules.min_lag_ms > 0 and segment.largest_timestamp_ms > now_ms - rules.min_lag_ms


def is_overdue(timestamp_ms: int, rules: CompactionRules, now_ms: int) -> bool:
    """Return True when a record of that time has to be compacted now (-1: never)."""
    return timestamp_ms >= 0 and now_ms - timestamp_ms > rules.max_lag_ms


def group_segments(
    spans: Sequence[SegmentSpan], *, max_bytes: int, max_offsets: int
) -> list[slice]:
    """Return runs of segments that become one segment each, so that compaction leaves few small
    files."""
    groups: list[slice] = []
    begin = size = 0
    for number, span in enumerate(spans):
        too_much = size + span.size > max_bytes
        too_wide = span.next_offset - 1 - spans[begin].base_offset > max_offsets
        if number > begin and (too_much or too_wide):
            groups.append(slice(begin, number))
            begin, size = number, 0
        size += span.size
    if spans:
        groups.append(slice(begin, len(spans)))
    return groups


def kept_records(
    *,
    offsets: "NDArray[np.int64]",
    newest_offsets: "NDArray[np.int64]",
    is_tombstone: "NDArray[np.bool_]",
    tombstone_is_due: "NDArray[np.bool_]",
) -> "NDArray[np.bool_]":
    """Return which records stay; all arguments have a row for each record.

    `newest_offsets` is -1 for keys without a newer record in the pass; `tombstone_is_due` is True
    where the delete horizon of the record's batch is over.
    """
    return (offsets >= newest_offsets) & ~(is_tombstone & tombstone_is_due)


def tombstones_are_due(delete_horizon_ms: int, now_ms: int) -> bool:
    """Return True when the tombstones of a batch can go; NO_HORIZON: no pass has kept them yet."""
    return delete_horizon_ms != NO_HORIZON and delete_horizon_ms <= now_ms


def new_delete_horizon(now_ms: int, rules: CompactionRules) -> int:
    """Return when tombstones that are kept for the first time may go."""
    return min(now_ms + rules.delete_retention_ms, (1 << 62) - 1)


class CleanedTransactions:
    """The transactions that one pass over a log has seen."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: by ascending last offset, all that overlap the offsets of the pass."""
        self._aborted: dict[int, deque[AbortedTransaction]] = {}
        for each in aborted:
            self._aborted.setdefault(each.producer_id, deque()).append(each)
        self._with_data: set[int] = set()
        """Producers whose present transaction has data in the log."""

    def note_data(self, producer_id: int, base_offset: int) -> bool:
        """Record a transactional batch; return True when its transaction was aborted."""
        self._with_data.add(producer_id)
        aborted = self._current(producer_id, base_offset)
        return aborted is not None and aborted.first_offset <= base_offset

    def note_marker(self, producer_id: int, offset: int) -> tuple[bool, AbortedTransaction | None]:
        """Record a marker. Return whether the log still has data of its transaction, and, in that
        case, its entry for the transaction index if it was aborted.
        """
        if producer_id not in self._with_data:
            return False, None
        self._with_data.discard(producer_id)
        aborted = self._current(producer_id, offset)
        is_end = aborted is not None and aborted.last_offset == offset
        return True, aborted if is_end else None

    def _current(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """Return the producer's first aborted transaction that ends at or after `offset`."""
        coming = self._aborted.get(producer_id)
        while coming and coming[0].last_offset < offset:
            coming.popleft()
        return coming[0] if coming else None
