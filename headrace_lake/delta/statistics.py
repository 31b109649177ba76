"""The statistics of a data file as Delta's log has them, from the file's own metadata.

A bound may be wider than the values, never narrower. Times are rounded to milliseconds, outwards,
as readers keep no more; long strings are cut. There are none for binary values, lists and maps, nor
for floats among which a NaN was seen, which readers order in different ways, or an infinite one,
which JSON has no number for.
"""

import json
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

StatValue = str | int | float | bool | Decimal
StatTree = dict[str, "StatValue | StatTree"]

INDEXED_COLUMNS = 32
"""How many single values have statistics, beside those of the place: Delta's default."""

PLACE = ("_topic", "_partition", "_offset", "_timestamp")
STRING_CHARACTERS = 32
_LAST_CHARACTER = "\U0010ffff"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND_RANGE = (-62_135_596_800_000, 253_402_300_799_999)
"""From the year 1 to 9999, which each reader can parse."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    index: int
    path: tuple[str, ...]
    type: pa.DataType


def file_statistics(
    metadata: pq.FileMetaData, schema: pa.Schema, with_nan: Collection[str] = ()
) -> str:
    """Return the statistics as JSON. `with_nan` names columns in which a NaN was seen."""
    low: StatTree = {}
    high: StatTree = {}
    nulls: StatTree = {}
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    for leaf in _indexed(schema):
        found = [group.column(leaf.index).statistics for group in groups]
        if any(each is None for each in found):
            continue
        if all(each.has_null_count for each in found):
            _put(nulls, leaf.path, sum(each.null_count for each in found))
        with_values = [each for each in found if each.has_min_max]
        counted = sum(each.num_values > 0 for each in found)
        if not with_values or len(with_values) < counted:
            continue
        if pa.types.is_floating(leaf.type) and (len(leaf.path) > 1 or leaf.path[0] in with_nan):
            continue
        bounds = _bounds(leaf.type, with_values)
        if bounds is not None:
            _put(low, leaf.path, bounds[0])
            _put(high, leaf.path, bounds[1])
    tree: StatTree = {"numRecords": metadata.num_rows}
    tree |= {"minValues": low, "maxValues": high, "nullCount": nulls}
    return _json(tree)


def _indexed(schema: pa.Schema) -> Iterator[_Leaf]:
    left = INDEXED_COLUMNS
    for leaf in _leaves(schema):
        if leaf.path[0] in PLACE:
            yield leaf
        elif left:
            left -= 1
            yield leaf


def _leaves(schema: pa.Schema) -> Iterator[_Leaf]:
    """Yield each single value with its place among the file's columns; lists and maps are passed
    over."""
    index = 0
    waiting: list[tuple[tuple[str, ...], pa.DataType]] = [
        ((field.name,), field.type) for field in reversed(schema)
    ]
    while waiting:
        path, kind = waiting.pop()
        if pa.types.is_struct(kind):
            fields = [kind.field(each) for each in range(kind.num_fields)]
            waiting += [((*path, each.name), each.type) for each in reversed(fields)]
        elif pa.types.is_nested(kind):
            index += _width(kind)
        else:
            yield _Leaf(index, path, kind)
            index += 1


def _width(kind: pa.DataType) -> int:
    if pa.types.is_map(kind):
        return _width(kind.key_type) + _width(kind.item_type)
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        return sum(_width(kind.field(each).type) for each in range(kind.num_fields))
    return 1


def _bounds(kind: pa.DataType, found: list[pq.Statistics]) -> tuple[StatValue, StatValue] | None:
    if pa.types.is_binary(kind):
        return None
    if pa.types.is_timestamp(kind):
        return _time_bounds(kind, found)
    if pa.types.is_date32(kind):
        days = min(each.min_raw for each in found), max(each.max_raw for each in found)
        if not all(_is_written(each * 86_400_000) for each in days):
            return None
        return _day(days[0]), _day(days[1])
    low, high = min(each.min for each in found), max(each.max for each in found)
    if pa.types.is_floating(kind) and not (math.isfinite(low) and math.isfinite(high)):
        return None
    if pa.types.is_string(kind):
        if len(high) > STRING_CHARACTERS:
            high = high[:STRING_CHARACTERS] + _LAST_CHARACTER
        return low[:STRING_CHARACTERS], high
    return low, high


def _time_bounds(
    kind: pa.DataType, found: list[pq.Statistics]
) -> tuple[StatValue, StatValue] | None:
    low = min(each.min_raw for each in found) // 1000
    high = -(-max(each.max_raw for each in found) // 1000)
    if not (_is_written(low) and _is_written(high)):
        return None
    zone = "" if kind.tz is None else "Z"
    return f"{_instant(low)}{zone}", f"{_instant(high)}{zone}"


def _is_written(milliseconds: int) -> bool:
    return _MILLISECOND_RANGE[0] <= milliseconds <= _MILLISECOND_RANGE[1]


def _instant(milliseconds: int) -> str:
    at = _EPOCH + timedelta(milliseconds=milliseconds)
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds")


def _day(days: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def _put(tree: StatTree, path: tuple[str, ...], value: StatValue) -> None:
    for name in path[:-1]:
        inner = tree.setdefault(name, {})
        assert isinstance(inner, dict)
        tree = inner
    tree[path[-1]] = value


def _json(value: StatValue | StatTree) -> str:
    """Return JSON; the library of Python can't write a decimal with all its digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value)
