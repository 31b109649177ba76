"""Filters of a batch read that narrow what is fetched. Only rows that the filters drop are left
out; Spark applies those filters again that this leaves incomplete.

    topic, partition   whole partitions are left out; complete
    offset             ranges are clipped; complete except for IN with gaps, and NOT
    timestamp          ranges begin at the first record that is late enough. Spark filters again,
                       because records need not be in the order of their timestamps. For the same
                       reason an upper bound narrows nothing: later records may be older.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    ColumnPath,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from connector.source.offset_range import OffsetRange
from storage_engine.core.ids import TopicPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """The part of a read that filters leave."""

    filters: tuple[Filter, ...] = field(default=())
    """The filters on topic and partition."""

    start_offset: int | None = None
    end_offset: int | None = None
    """Exclusive. Both offsets hold for every partition."""

    start_timestamp_ms: int | None = None
    """Ranges begin at the first record that is as late as this, or later."""

    def clip(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """`ranges` without the partitions and offsets that the filters drop."""
        clipped = []
        for each in ranges:
            if all(_accepts(one, each.topic_partition) for one in self.filters):
                start, end = each.start_offset, each.end_offset
                if self.start_offset is not None:
                    start = max(start, self.start_offset)
                if self.end_offset is not None:
                    end = min(end, self.end_offset)
                if start < end:
                    clipped.append(replace(each, start_offset=start, end_offset=end))
        return clipped

    def begin_at(
        self, ranges: Iterable[OffsetRange], offsets: Mapping[TopicPartition, int]
    ) -> list[OffsetRange]:
        """`ranges` from `offsets` on, which are the first offsets at `start_timestamp_ms`. Where
        that is negative there is none, and the range is left out."""
        return [
            replace(each, start_offset=max(each.start_offset, offsets[each.topic_partition]))
            for each in ranges
            if 0 <= offsets[each.topic_partition] < each.end_offset
        ]


def narrow(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """The part of a read that all `filters` leave, and the filters that Spark has to apply
    again."""
    narrowing = Narrowing()
    left: list[Filter] = []
    for each in filters:
        narrower, exact = _with(narrowing, each)
        narrowing = narrower
        if not exact:
            left.append(each)
    return narrowing, left


def _with(narrowing: Narrowing, one: Filter) -> tuple[Narrowing, bool]:
    """`narrowing` narrowed by `one`, and whether that is complete."""
    column = _column(one)
    if isinstance(one, IsNotNull):
        return narrowing, column in _NEVER_NULL
    match column:
        case "topic" | "partition":
            if not _can_decide(one, str if column == "topic" else int):
                return narrowing, False
            return replace(narrowing, filters=(*narrowing.filters, one)), True
        case "offset":
            return _with_offset(narrowing, one)
        case "timestamp":
            return _with_timestamp(narrowing, one), False
    return narrowing, False


def _column(one: Filter) -> str | None:
    inner = one.child if isinstance(one, Not) else one
    path: ColumnPath = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else None


# Topic and partition: a filter holds for a whole partition or not at all.

_COMPARISONS: Mapping[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, wanted: found == wanted,
    EqualNullSafe: lambda found, wanted: found == wanted,
    GreaterThan: lambda found, wanted: found > wanted,
    GreaterThanOrEqual: lambda found, wanted: found >= wanted,
    LessThan: lambda found, wanted: found < wanted,
    LessThanOrEqual: lambda found, wanted: found <= wanted,
    In: lambda found, wanted: found in wanted,
    IsNull: lambda found, wanted: False,
    StringStartsWith: lambda found, wanted: found.startswith(wanted),
    StringEndsWith: lambda found, wanted: found.endswith(wanted),
    StringContains: lambda found, wanted: wanted in found,
}


def _can_decide(one: Filter, kind: type) -> bool:
    """Whether the filter can be applied here. Spark compares strings by their bytes, and so does
    Python, since topic names are ASCII."""
    if isinstance(one, Not):
        return not isinstance(one.child, Not) and _can_decide(one.child, kind)
    if type(one) not in _COMPARISONS:
        return False
    if isinstance(one, IsNull):
        return True
    value = getattr(one, "value", None)
    values = value if isinstance(one, In) else (value,)
    return all(type(each) is kind for each in values or (None,))


def _accepts(one: Filter, topic_partition: TopicPartition) -> bool:
    if isinstance(one, Not):
        return not _accepts(one.child, topic_partition)
    found = topic_partition.topic if _column(one) == "topic" else topic_partition.partition
    return _COMPARISONS[type(one)](found, getattr(one, "value", None))


# Offset: half-open ranges.


def _with_offset(narrowing: Narrowing, one: Filter) -> tuple[Narrowing, bool]:
    bounds = _bounds(one)
    if bounds is None:
        return narrowing, False
    start, end, exact = bounds
    starts = [each for each in (narrowing.start_offset, start) if each is not None]
    ends = [each for each in (narrowing.end_offset, end) if each is not None]
    both = replace(
        narrowing, start_offset=max(starts, default=None), end_offset=min(ends, default=None)
    )
    return both, exact


def _bounds(one: Filter) -> tuple[int | None, int | None, bool] | None:
    """Start and exclusive end of the whole numbers that pass, and whether all between them pass."""
    if isinstance(one, In):
        numbers = sorted({each for each in one.value if type(each) is int})
        if not numbers or len(numbers) < len(set(one.value)):
            return None
        return numbers[0], numbers[-1] + 1, numbers[-1] - numbers[0] == len(numbers) - 1
    value = getattr(one, "value", None)
    if type(value) is not int:
        return None
    match one:
        case EqualTo() | EqualNullSafe():
            return value, value + 1, True
        case GreaterThan():
            return value + 1, None, True
        case GreaterThanOrEqual():
            return value, None, True
        case LessThan():
            return None, value, True
        case LessThanOrEqual():
            return None, value + 1, True
    return None


# Timestamp: a lower bound, in whole milliseconds as records have them.


def _with_timestamp(narrowing: Narrowing, one: Filter) -> Narrowing:
    least_us = _least_us(one)
    if least_us is None:
        return narrowing
    least_ms = -(-least_us // 1000)
    # Negative timestamps have special meanings in ListOffsets, and few records have one.
    if least_ms < 0:
        return narrowing
    known = narrowing.start_timestamp_ms
    return replace(
        narrowing, start_timestamp_ms=least_ms if known is None else max(known, least_ms)
    )


def _least_us(one: Filter) -> int | None:
    """The earliest time that passes, in microseconds since 1970. None where there is none."""
    if isinstance(one, In):
        times = [_microseconds(each) for each in one.value]
        known = [each for each in times if each is not None]
        return min(known) if known and len(known) == len(times) else None
    value = _microseconds(getattr(one, "value", None))
    if value is None:
        return None
    match one:
        case EqualTo() | EqualNullSafe() | GreaterThanOrEqual():
            return value
        case GreaterThan():
            return value + 1
    return None


def _microseconds(value: object) -> int | None:
    """Returns None for a time without a zone, and for another type."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND
