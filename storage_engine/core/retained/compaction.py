"""The rules of compaction. A record is removed only when a newer one of its key, which can no
longer be lost, has replaced it.

    |<---------- clean ---------->|<------ dirty ------>|<-- not yet -->|<- active ->|
    log start          first dirty offset      first uncleanable offset        log end

A pass collects the newest offset of every key between the first dirty offset and its own end, then
reads the log from its start and drops older records. Records are not yet cleaned at or above the
high watermark (they may be truncated), while they are not on the medium, while they are younger
than `min.compaction.lag.ms`, and in the active segment.

Records at or above the last stable offset are not yet cleaned either: their transactions may still
end either way. Records of aborted transactions are removed, whatever their keys. The marker of a
transaction stays until a pass finds no data of the transaction, and `delete.retention.ms` after
that.

A tombstone (a key without a value) stays until `delete.retention.ms` after the pass that first kept
it, so that a consumer that reads from the start within that time learns of the deletion. Source:
R-LOG10, KIP-58 (lags), KIP-98 (transactions), KIP-354 (maximum lag), KIP-534 (delete horizon).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    """The settings of one log."""

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
    *, offsets: Any, newest_offsets: Any, is_tombstone: Any, tombstone_is_due: Any
) -> Any:
    """Return which records stay; all arguments are numpy columns with a row for each record.

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
