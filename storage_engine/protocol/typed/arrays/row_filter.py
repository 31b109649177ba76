"""Which rows meet a filter, by Arrow's kernels with Spark's meaning of comparisons.

Null meets only IS NULL. NaN equals itself and is larger than every other number; -0.0 equals 0.0.
Strings and binaries compare by their bytes. A condition's values are of the column's type: what it
can't hold is refused where the condition is read (`core/typed/literals.py`).
"""

import math
import struct
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.comparisons import Comparison, Literal, Operator
from storage_engine.protocol.records.arrow_binary import binary_scalar
from storage_engine.protocol.records.arrow_kernels import as_type, kernel
from storage_engine.protocol.records.varints import Mask
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.nested_arrays import bits, one_value

_KERNELS = {
    Operator.EQ: "equal",
    Operator.NE: "not_equal",
    Operator.LT: "less",
    Operator.LE: "less_equal",
    Operator.GT: "greater",
    Operator.GE: "greater_equal",
    Operator.IN: "equal",
}
_EXACT = Context(prec=80)


def matching_rows(array: pa.Array, column_type: types.ColumnType, comparison: Comparison) -> Mask:
    """Return a numpy column that is true for each value of the array that meets the comparison."""
    operator = comparison.operator
    if operator is Operator.IS_NULL:
        return bits(kernel("is_null", array))
    if operator is Operator.IS_NOT_NULL:
        return bits(kernel("is_valid", array))
    if isinstance(column_type, types.ArrayColumn | types.MapColumn | types.StructColumn):
        raise InvalidRequestError(
            f"a filter can't compare values of type {types.ddl_of(column_type)}: it can ask for "
            "IS NULL, or compare the rest after reading"
        )
    found = np.zeros(len(array), np.bool_)
    comparable = _comparable(array, column_type)
    for value in comparison.values:
        found |= _compared(comparable, column_type, operator, value)
    return found


def _comparable(array: pa.Array, column_type: types.ColumnType) -> pa.Array:
    """Return an array that compares by the kernels: whole numbers, doubles, binaries, decimals."""
    match column_type:
        case types.FloatColumn():
            return as_type(array, pa.float64())
        case types.StringColumn():
            return array.view(pa.binary())
        case types.BinaryColumn() | types.BooleanColumn():
            return array
        case types.DecimalColumn():
            return array
        case types.IntegerColumn():
            return as_type(array, pa.int64())
        case _:
            width = arrow_type(column_type).bit_width
            return as_type(array.view(pa.int32() if width == 32 else pa.int64()), pa.int64())


def _compared(
    array: pa.Array, column_type: types.ColumnType, operator: Operator, value: Literal
) -> Mask:
    """Compare with one value. Nulls give False."""
    if isinstance(column_type, types.FloatColumn) and isinstance(value, float):
        return _compared_floats(array, operator, value)
    return _truth(kernel(_KERNELS[operator], array, _scalar(array, column_type, value)))


def _scalar(array: pa.Array, column_type: types.ColumnType, value: Literal) -> pa.Scalar:
    """Return a value as the array has it; InvalidRequestError for one of another type."""
    match column_type, value:
        case types.StringColumn(), str():
            return binary_scalar(value.encode())
        case types.BinaryColumn(), bytes():
            return binary_scalar(value)
        case types.BooleanColumn(), bool():
            return one_value(pa.bool_(), bytes((value,)))
        case types.DecimalColumn(precision, scale), Decimal() | int():
            unscaled = _EXACT.scaleb(Decimal(value), scale)
            if unscaled == int(unscaled) and abs(unscaled) < 10**precision:
                return one_value(array.type, int(unscaled).to_bytes(16, "little", signed=True))
        case (
            types.IntegerColumn()
            | types.DateColumn()
            | types.TimestampColumn()
            | types.IntervalColumn(),
            int(),
        ) if -(1 << 63) <= value < 1 << 63:
            return one_value(pa.int64(), struct.pack("<q", value))
    raise InvalidRequestError(
        f"a filter compares a column of type {types.ddl_of(column_type)} with {value!r:.80}: give "
        "a value of that type"
    )


def _compared_floats(array: pa.Array, operator: Operator, value: float) -> Mask:
    if math.isnan(value):
        is_nan = _truth(kernel("is_nan", array))
        valid = bits(kernel("is_valid", array))
        match operator:
            case Operator.EQ | Operator.IN | Operator.GE:
                return is_nan
            case Operator.NE | Operator.LT:
                return valid & ~is_nan
            case Operator.LE:
                return valid
            case _:
                return np.zeros(len(array), np.bool_)
    found = _truth(
        kernel(_KERNELS[operator], array, one_value(pa.float64(), struct.pack("<d", value)))
    )
    if operator in (Operator.GT, Operator.GE):
        found |= _truth(kernel("is_nan", array))
    return found


def _truth(array: pa.Array) -> Mask:
    """Return a pa.BooleanArray as a numpy column, with False for nulls."""
    found = bits(array)
    if array.null_count:
        found &= bits(kernel("is_valid", array))
    return found
