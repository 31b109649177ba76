"""The parts of values that hold no others: primitive and logical types, and fixed.

Arrays here have no nulls and at least one row. Times that are finer than the schema's unit are cut
off downwards.
"""

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.core.schemas.avro.schema import Decimal, Fixed, Logical, Primitive
from storage_engine.protocol.avro.encoding.byte_rows import (
    NumberPart,
    Part,
    lengths_of,
    numbers,
    small_bytes,
    without_nulls,
)
from storage_engine.protocol.avro.encoding.decimal_bytes import fixed_bytes, shortest_bytes
from storage_engine.protocol.avro.encoding.value_errors import UnencodableValueError
from storage_engine.protocol.records.arrow_binary import as_column, binary_array, numbers_in
from storage_engine.protocol.records.arrow_kernels import as_type
from storage_engine.protocol.records.varints import Ints, Mask, Number
from storage_engine.protocol.typed.nested_arrays import bits

_UNITS = {
    Logical.TIMESTAMP_MILLIS: "ms",
    Logical.TIMESTAMP_MICROS: "us",
    Logical.TIMESTAMP_NANOS: "ns",
    Logical.LOCAL_TIMESTAMP_MILLIS: "ms",
    Logical.LOCAL_TIMESTAMP_MICROS: "us",
    Logical.LOCAL_TIMESTAMP_NANOS: "ns",
    Logical.TIME_MILLIS: "ms",
    Logical.TIME_MICROS: "us",
}
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_LARGEST = 2**63 - 1

_HEX = np.full(256, 0xFF, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_HEX[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)
_UUID_LENGTH, _UUID_BYTES = 36, 16
_DASHES = (8, 13, 18, 23)
_DIGITS = [place for place in range(_UUID_LENGTH) if place not in _DASHES]


def plain_value(schema: Primitive, array: pa.Array) -> list[Part]:
    """The parts of a primitive type. UnencodableValueError."""
    match schema.name:
        case "null":
            return []
        case "boolean":
            return [small_bytes(bits(_as(array, pa.bool_())))]
        case "int":
            return [numbers(_whole_numbers(schema.logical, array, pa.int32()))]
        case "long":
            return [numbers(_whole_numbers(schema.logical, array, pa.int64()))]
        case "float":
            floats = _as(array, pa.float32())
            return [NumberPart(_numbers_of(floats, np.float32))]
        case "double":
            doubles = _as(array, pa.float64())
            return [NumberPart(_numbers_of(doubles, np.float64))]
    if schema.name == "bytes" and isinstance(schema.logical, Decimal):
        binary = shortest_bytes(_decimal(schema.logical, array))
    else:
        binary = without_nulls(_as_binary(array, is_text=schema.name == "string"))
    return [numbers(lengths_of(binary)), binary]


def fixed_value(schema: Fixed, array: pa.Array) -> pa.Array:
    """The bytes of a fixed. UnencodableValueError for a value of another length."""
    if isinstance(schema.logical, Decimal):
        binary, too_wide = fixed_bytes(_decimal(schema.logical, array), schema.size)
        _refuse(too_wide, array, f"needs more than the {schema.size} bytes of '{schema.name}'")
        return binary
    if schema.logical is Logical.UUID and pa.types.is_string(array.type):
        return _uuid_bytes(array)
    binary = without_nulls(_as_binary(array, is_text=False))
    lengths = lengths_of(binary)
    wrong = lengths != schema.size
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UnencodableValueError(
            row, f"it has {lengths[row]} bytes, and '{schema.name}' has {schema.size}"
        )
    return binary


def _whole_numbers(logical: object, array: pa.Array, kind: pa.DataType) -> Ints:
    if isinstance(logical, Logical) and logical in _UNITS and pa.types.is_temporal(array.type):
        values = _in_unit(array, _UNITS[logical])
    elif pa.types.is_date(array.type):
        days = _as(array, pa.date32())
        return numbers_in(days.buffers()[1], np.int32, days.offset, len(days)).astype(np.int64)
    else:
        found = as_type(_as(array, kind), pa.int64())
        return numbers_in(found.buffers()[1], np.int64, found.offset, len(found))
    if kind == pa.int32():
        _refuse((values < -(2**31)) | (values >= 2**31), array, "does not fit into an int")
    return values


def _in_unit(array: pa.Array, unit: str) -> Ints:
    """Times as whole numbers of a unit."""
    if pa.types.is_time32(array.type):
        values = numbers_in(array.buffers()[1], np.int32, array.offset, len(array)).astype(np.int64)
    else:
        values = numbers_in(array.buffers()[1], np.int64, array.offset, len(array))
    given, wanted = _PER_SECOND[array.type.unit], _PER_SECOND[unit]
    if given > wanted:
        return values // (given // wanted)
    factor = wanted // given
    most = _LARGEST // factor
    _refuse((values > most) | (values < -most), array, f"is outside of what a long holds in {unit}")
    return values * factor


def _numbers_of(array: pa.Array, kind: type[Number]) -> npt.NDArray[Number]:
    return numbers_in(array.buffers()[1], kind, array.offset, len(array))


def _decimal(logical: Decimal, array: pa.Array) -> pa.Array:
    wide = pa.types.is_decimal256(array.type) or logical.precision > 38
    kind = pa.decimal256 if wide else pa.decimal128
    return _as(array, kind(logical.precision, logical.scale))


def _as_binary(array: pa.Array, *, is_text: bool) -> pa.Array:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return array
    return _as(array, pa.string() if is_text else pa.binary())


def _uuid_bytes(array: pa.Array) -> pa.Array:
    """The 16 bytes of texts such as 01234567-89ab-cdef-0123-456789abcdef."""
    values = as_column(array, "a UUID")
    _refuse(values.lengths != _UUID_LENGTH, array, "is not a UUID")
    first = int(values.offsets[0])
    text = np.frombuffer(values.data, np.uint8)[first : first + len(array) * _UUID_LENGTH]
    text = text.reshape(len(array), _UUID_LENGTH)
    digits = _HEX[text[:, _DIGITS]]
    wrong = (digits == 0xFF).any(axis=1) | (text[:, list(_DASHES)] != ord("-")).any(axis=1)
    _refuse(wrong, array, "is not a UUID")
    packed = (digits[:, 0::2] << 4) | digits[:, 1::2]
    offsets = (np.arange(len(array) + 1) * _UUID_BYTES).astype(np.int32)
    return binary_array(offsets, pa.py_buffer(np.ascontiguousarray(packed)))


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values in the schema's type. UnencodableValueError where one does not fit."""
    try:
        return as_type(array, kind)
    except pa.ArrowException as error:
        text = re.sub(r"\s+", " ", str(error))[:300]
        raise UnencodableValueError(_first_unfit(array, kind), f"it is no {kind}: {text}") from None


def _first_unfit(array: pa.Array, kind: pa.DataType) -> int:
    """The first row that can't be of the type, found by halves."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            as_type(array.slice(low, middle - low), kind)
        except pa.ArrowException:
            high = middle
        else:
            low = middle
    return low


def _refuse(wrong: Mask, array: pa.Array, why: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UnencodableValueError(row, f"{str(array[row])[:100]!r} {why}")
