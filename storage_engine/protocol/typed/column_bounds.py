"""The least and the largest value of a column, and whether it has NaN, by Arrow's kernels."""

import math
from typing import NamedTuple

import pyarrow as pa

from storage_engine.core.typed import column_types as types
from storage_engine.protocol.records.arrow_kernels import kernel
from storage_engine.protocol.typed.arrays.plain_numbers import plain_values
from storage_engine.protocol.typed.directory import (
    HAS_BOUNDS,
    HAS_NAN,
    MAXIMUM_SHORTENED,
    MINIMUM_SHORTENED,
    encode_bound,
)


class ColumnBounds(NamedTuple):
    """What the directory says of a column's values."""

    flags: int
    minimum: bytes
    maximum: bytes


NO_BOUNDS = ColumnBounds(0, b"", b"")


def bounds_of(array: pa.Array, column_type: types.ColumnType) -> ColumnBounds:
    """Return the bounds of an array of this type; for a pa.DictionaryArray those of its values,
    each of which some row has."""
    if isinstance(column_type, types.ArrayColumn | types.MapColumn | types.StructColumn):
        return NO_BOUNDS
    if pa.types.is_dictionary(array.type):
        array = array.dictionary
    values = plain_values(array)
    if values is not None:
        least, largest = values.min().item(), values.max().item()
        # NaN would be both.
        if least == least:
            return ColumnBounds(
                HAS_BOUNDS,
                encode_bound(least, column_type)[0],
                encode_bound(largest, column_type)[0],
            )
    flags = 0
    if isinstance(column_type, types.DateColumn):
        array = array.view(pa.int32())
    elif isinstance(column_type, types.TimestampColumn | types.IntervalColumn):
        array = array.view(pa.int64())
    elif (
        isinstance(column_type, types.FloatColumn)
        and kernel("any", kernel("is_nan", array)).as_py()
    ):
        flags = HAS_NAN
    found = kernel("min_max", array)
    least, largest = found["min"].as_py(), found["max"].as_py()
    if least is None or (flags and math.isnan(least)):
        return ColumnBounds(flags, b"", b"")
    minimum, minimum_shortened = encode_bound(least, column_type)
    maximum, maximum_shortened = encode_bound(largest, column_type)
    flags |= HAS_BOUNDS
    if minimum_shortened:
        flags |= MINIMUM_SHORTENED
    if maximum_shortened:
        flags |= MAXIMUM_SHORTENED
    return ColumnBounds(flags, minimum, maximum)
