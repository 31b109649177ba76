"""Which rows meet a filter, by Arrow's kernels with Spark's meaning of comparisons.

Null meets only IS NULL. NaN equals itself and is larger than every other number; -0.0 equals 0.0.
Strings and binaries compare by their bytes. What a column's type can't hold is equal to none of its
values, and still larger or smaller than them.
"""

import math
import struct
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.comparisons import Comparison, Literal, Operator
from storage_engine.protocol.records.arrow_binary import binary_scalar
from storage_engine.protocol.records.arrow_kernels import cast, kernel
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
_TRUE_FOR_LARGER_VALUES = (Operator.NE, Operator.LT, Operator.LE)
"""The operators that hold between a column's value and a literal that is larger than all values."""
_TRUE_FOR_SMALLER_VALUES = (Operator.NE, Operator.GT, Operator.GE)

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_EXACT = Context(prec=80)


def matching_rows(array: pa.Array, column_type: types.ColumnType, comparison: Comparison) -> Any:
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
            return cast(array, pa.float64())
        case types.StringColumn():
            return array.view(pa.binary())
        case types.BinaryColumn() | types.BooleanColumn():
            return array
        case types.DecimalColumn():
            return array
        case types.IntegerColumn():
            return cast(array, pa.int64())
        case _:
            width = arrow_type(column_type).bit_width
            return cast(array.view(pa.int32() if width == 32 else pa.int64()), pa.int64())


def _compared(
    array: pa.Array, column_type: types.ColumnType, operator: Operator, value: Literal
) -> Any:
    """Compare with one value. Nulls give False."""
    match column_type:
        case types.FloatColumn():
            return _compared_floats(array, operator, float(value))
        case types.StringColumn() | types.BinaryColumn():
            data = value.encode() if isinstance(value, str) else value
            if not isinstance(data, bytes):
                raise _wrong_value(value, column_type)
            return _truth(kernel(_KERNELS[operator], array, binary_scalar(data)))
        case types.BooleanColumn():
            if not isinstance(value, bool):
                raise _wrong_value(value, column_type)
            return _truth(kernel(_KERNELS[operator], array, one_value(pa.bool_(), bytes((value,)))))
        case types.DecimalColumn():
            return _compared_decimals(array, column_type, operator, value)
        case _:
            return _compared_integers(array, column_type, operator, value)


def _compared_integers(
    array: pa.Array, column_type: types.ColumnType, operator: Operator, value: Any
) -> Any:
    if isinstance(value, str | bytes):
        raise _wrong_value(value, column_type)
    if isinstance(value, float) and not math.isfinite(value):
        # NaN is larger than every number.
        return _constant(array, operator, is_larger=not value < 0)
    whole = math.floor(value)
    compared: Operator | None = operator
    if whole != value:
        # Between two whole numbers: above the lower one, below the other.
        compared, whole = _between(operator, whole)
    if not _INT64_MIN <= whole <= _INT64_MAX:
        return _constant(array, compared, is_larger=whole > 0)
    return _against(array, compared, one_value(pa.int64(), struct.pack("<q", whole)))


def _between(operator: Operator, below: int) -> tuple[Operator | None, int]:
    """Return the comparison with the whole number below that means the same; the operator None
    stands for a comparison that no value meets."""
    match operator:
        case Operator.LT | Operator.LE:
            return Operator.LE, below
        case Operator.GT | Operator.GE:
            return Operator.GT, below
        case Operator.NE:
            return Operator.IS_NOT_NULL, below
        case _:
            return None, below


def _against(array: pa.Array, operator: Operator | None, scalar: pa.Scalar) -> Any:
    if operator is None:
        return np.zeros(len(array), np.bool_)
    if operator is Operator.IS_NOT_NULL:
        return bits(kernel("is_valid", array))
    return _truth(kernel(_KERNELS[operator], array, scalar))


def _compared_decimals(
    array: pa.Array, column_type: types.DecimalColumn, operator: Operator, value: Any
) -> Any:
    if isinstance(value, str | bytes):
        raise _wrong_value(value, column_type)
    if isinstance(value, float) and not math.isfinite(value):
        return _constant(array, operator, is_larger=not value < 0)
    unscaled = _EXACT.scaleb(Decimal(value), column_type.scale)
    whole = int(unscaled.to_integral_value(rounding="ROUND_FLOOR"))
    compared: Operator | None = operator
    if whole != unscaled:
        compared, whole = _between(operator, whole)
    if abs(whole) >= 10**column_type.precision:
        return _constant(array, compared, is_larger=whole > 0)
    scalar = one_value(array.type, whole.to_bytes(16, "little", signed=True))
    return _against(array, compared, scalar)


def _compared_floats(array: pa.Array, operator: Operator, value: float) -> Any:
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


def _constant(array: pa.Array, operator: Operator | None, *, is_larger: bool) -> Any:
    """Compare with what is larger, or smaller, than every value of the type."""
    meets = _TRUE_FOR_LARGER_VALUES if is_larger else _TRUE_FOR_SMALLER_VALUES
    if operator in meets or operator is Operator.IS_NOT_NULL:
        return bits(kernel("is_valid", array))
    return np.zeros(len(array), np.bool_)


def _truth(array: pa.Array) -> Any:
    """Return a pa.BooleanArray as a numpy column, with False for nulls."""
    found = bits(array)
    if array.null_count:
        found &= bits(kernel("is_valid", array))
    return found


def _wrong_value(value: Any, column_type: types.ColumnType) -> InvalidRequestError:
    return InvalidRequestError(
        f"a filter compares a column of type {types.ddl_of(column_type)} with {value!r:.80}: give "
        "a value of that type"
    )
