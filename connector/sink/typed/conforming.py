"""Gives the columns of a DataFrame the exact Arrow types of a topic's columns, without a loss:
narrower numbers are widened, struct fields are put in the topic's order, and time zones and the
width of offsets become those of the topic. `column_matching` has checked that this is possible.

A column that already has the right type is returned as it is.
"""

import pyarrow as pa

from storage_engine.core.typed.column_types import (
    ArrayColumn,
    ColumnType,
    MapColumn,
    StructColumn,
)
from storage_engine.protocol.typed.arrow_types import arrow_type


def conformed(column: pa.Array, column_type: ColumnType) -> pa.Array:
    """The same values with the type of a topic's column. pyarrow.ArrowInvalid for a value that the
    type does not hold."""
    wanted = arrow_type(column_type)
    if column.type.equals(wanted, check_metadata=True):
        return column
    match column_type:
        case ArrayColumn(element, _):
            column = _unsliced(column)
            values = conformed(column.values, element)
            return pa.ListArray.from_arrays(column.offsets, values, type=wanted, mask=_mask(column))
        case MapColumn(key, value, _):
            column = _unsliced(column)
            keys, items = conformed(column.keys, key), conformed(column.items, value)
            return pa.MapArray.from_arrays(
                column.offsets, keys, items, type=wanted, mask=_mask(column)
            )
        case StructColumn():
            return _conformed_struct(column, column_type, wanted)
    return column.cast(wanted)


def _conformed_struct(
    column: pa.StructArray, column_type: StructColumn, wanted: pa.StructType
) -> pa.StructArray:
    places = {field.name.lower(): place for place, field in enumerate(column.type)}
    children = []
    for each in column_type.fields:
        place = places.get(each.name.lower())
        children.append(
            pa.nulls(len(column), arrow_type(each.type))
            if place is None
            else conformed(column.field(place), each.type)
        )
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=_mask(column))


def _unsliced(column: pa.Array) -> pa.Array:
    """A slice as an array of its own, because the offsets of a slice don't go with a mask."""
    return pa.concat_arrays([column]) if column.offset else column


def _mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None
