"""Nulls where a schema allows none, at any depth of a nested column."""

import numpy as np
import pyarrow as pa

from storage_engine.core.typed.column_types import (
    ArrayColumn,
    ColumnType,
    MapColumn,
    StructColumn,
    parts_of,
)
from storage_engine.protocol.records.arrow_kernels import kernel, take
from storage_engine.protocol.typed.nested_arrays import list_lengths, map_as_list, null_mask


def first_null(array: pa.Array) -> int | None:
    """Return the first row of an array that has a null; None when none has."""
    return int(np.argmax(null_mask(array))) if array.null_count else None


def first_null_inside(array: pa.Array, column_type: ColumnType) -> int | None:
    """Return the first row in which a part of a nested value is null though its type says NOT NULL;
    None when there is none. A null for the whole value is not looked at."""
    if not _has_demands(column_type):
        return None
    match column_type:
        case ArrayColumn(element, nullable):
            return _row_of_element(array, _first(array.flatten(), element, nullable))
        case MapColumn(key, value, nullable):
            entries = map_as_list(array)
            parts = entries.flatten()
            found: tuple[int | None, ...] = (
                _first(parts.field(0), key, False),
                _first(parts.field(1), value, nullable),
            )
            return _row_of_element(entries, _least(found))
        case StructColumn(fields):
            rows = None
            if array.null_count:
                # The parts of a null struct are none.
                rows = kernel("indices_nonzero", kernel("is_valid", array))
            found = tuple(
                _first(
                    array.field(index) if rows is None else take(array.field(index), rows),
                    field.type,
                    field.nullable,
                )
                for index, field in enumerate(fields)
            )
            least = _least(found)
            return least if rows is None or least is None else int(rows[least].as_py())
        case _:
            return None


def _has_demands(column_type: ColumnType) -> bool:
    match column_type:
        case ArrayColumn(_, False) | MapColumn(_, _, False):
            return True
        case StructColumn(fields) if not all(field.nullable for field in fields):
            return True
    return any(map(_has_demands, parts_of(column_type)))


def _first(array: pa.Array, column_type: ColumnType, nullable: bool) -> int | None:
    outside = None if nullable else first_null(array)
    return _least((outside, first_null_inside(array, column_type)))


def _least(rows: tuple[int | None, ...]) -> int | None:
    return min((row for row in rows if row is not None), default=None)


def _row_of_element(array: pa.Array, element: int | None) -> int | None:
    if element is None:
        return None
    return int(np.searchsorted(np.cumsum(list_lengths(array)), element, side="right"))
