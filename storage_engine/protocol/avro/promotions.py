"""Conversions of values without parts: promotions of numbers and texts, times, decimals, enums.

Avro leaves logical types out of account when it resolves schemas. Here a time keeps its meaning:
a timestamp in milliseconds is read as the same time in microseconds, and back. Other pairs of
different logical types are refused, since the same number would mean something else.
"""

from itertools import pairwise

import numpy as np
import pyarrow as pa

from storage_engine.core.schemas.avro.schema import (
    Decimal,
    Enum,
    Fixed,
    Logical,
    LogicalType,
    Primitive,
)
from storage_engine.protocol.avro.arrays import taken, texts, unpacked, validity
from storage_engine.protocol.avro.arrow_types import plain_type
from storage_engine.protocol.avro.conversion import (
    Conversion,
    Converted,
    Misfits,
    offsets_of,
    unchanged,
)
from storage_engine.protocol.records.arrow_kernels import as_type, compute
from storage_engine.protocol.records.varints import Mask

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_TIMES = {
    Logical.TIMESTAMP_MILLIS,
    Logical.TIMESTAMP_MICROS,
    Logical.LOCAL_TIMESTAMP_MILLIS,
    Logical.LOCAL_TIMESTAMP_MICROS,
}
_MILLIS = {Logical.TIMESTAMP_MILLIS, Logical.LOCAL_TIMESTAMP_MILLIS}
_INT64 = pa.int64()
_RAW = {pa.date32(): pa.int32()}


def is_promoted(written: Primitive, read: Primitive) -> bool:
    """Whether Avro reads the one type as the other, which may be the same."""
    return written.name == read.name or read.name in _PROMOTIONS.get(written.name, ())


def promotion(written: Primitive, read: Primitive) -> Conversion | str:
    """Return the conversion of a type that is promoted to the other; a string says why there is
    none."""
    one, other = written.logical, read.logical
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        return decimals(one, other)
    source, target = plain_type(written), plain_type(read)
    if one is other and written.name == read.name:
        return unchanged
    if one in _TIMES and other in _TIMES:
        return unchanged if source == target else _viewed(target)
    if one is not None and other is not None and one is not other:
        return f"is {one.value}, which is not read as {other.value}"
    return _through_numbers(written, read, source, target)


def decimals(one: LogicalType | None, other: LogicalType | None) -> Conversion | str:
    """Return the conversion of decimals; a string says why there is none."""
    if not isinstance(one, Decimal) or not isinstance(other, Decimal):
        return "is a decimal on one side, and plain bytes on the other"
    if one.scale != other.scale or one.precision > other.precision:
        was, now = (f"({each.precision}, {each.scale})" for each in (one, other))
        return f"is a decimal{was}, which is not read as decimal{now}"
    if one == other:
        return unchanged
    return lambda array: (as_type(array, pa.decimal128(other.precision, other.scale)), [])


def _viewed(target: pa.DataType) -> Conversion:
    return lambda array: (array.view(target), [])


def _through_numbers(
    written: Primitive, read: Primitive, source: pa.DataType, target: pa.DataType
) -> Conversion:
    """Return a conversion by the numbers or texts that Avro has written."""
    if pa.types.is_string(target) and pa.types.is_binary(source):
        return _to_text
    if source == target and written.logical not in _TIMES and read.logical not in _TIMES:
        return unchanged
    divided, times = written.logical in _MILLIS, read.logical in _MILLIS
    raw = _INT64 if written.logical in _TIMES else _RAW.get(source, source)
    wide = _INT64 if read.logical in _TIMES else _RAW.get(target, target)

    def convert(array: pa.Array) -> Converted:
        numbers = array if array.type == raw else array.view(raw)
        if divided:
            numbers = compute.call_function("divide", [numbers, _thousand()])
        misfits: list[Misfits] = []
        if numbers.type != wide:
            # A long may be none of the doubles: the nearest one is taken, as in Java.
            options = compute.CastOptions.unsafe(wide)
            numbers = compute.call_function("cast", [numbers], options)
        if times:
            numbers, misfits = _thousandfold(numbers)
        return (numbers if wide == target else numbers.view(target)), misfits

    return convert


def _thousand() -> pa.Scalar:
    return pa.Array.from_buffers(_INT64, 1, [None, pa.py_buffer(np.array([1000]))])[0]


def _thousandfold(numbers: pa.Array) -> Converted:
    limit = np.iinfo(np.int64).max // 1000
    values = np.frombuffer(numbers.buffers()[1], np.int64)[numbers.offset :][: len(numbers)]
    wrong = (values > limit) | (values < -limit)
    product = compute.call_function("multiply", [numbers, _thousand()])
    return product, _misfits(numbers, wrong, "is a number of ms that no timestamp can be")


def _to_text(array: pa.Array) -> Converted:
    try:
        return as_type(array, pa.string()), []
    except pa.ArrowInvalid:
        pass
    offsets = offsets_of(array).tolist()
    data = memoryview(array.buffers()[2])
    wrong = np.array([not _is_text(data[start:end]) for start, end in pairwise(offsets)])
    rows = np.arange(len(array))
    valid = validity(array)
    good = ~wrong if valid is None else ~wrong & valid
    cleaned = as_type(taken(array, rows, good), pa.string())
    return cleaned, _misfits(array, wrong, "is no text in UTF-8")


def _is_text(data: memoryview) -> bool:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _misfits(array: pa.Array, wrong: Mask, reason: str) -> list[Misfits]:
    valid = validity(array)
    if valid is not None:
        wrong = wrong & valid
    return [Misfits(wrong, reason)] if wrong.any() else []


def symbols(written: Enum, read: Enum) -> Conversion | str:
    """Return the conversion of symbols; a string says why there is none."""
    missing = [each for each in written.symbols if each not in read.symbols]
    if not missing:
        return unchanged
    if read.default is None and len(missing) == len(written.symbols):
        return "none of the symbols is one of the reader's"
    options = compute.SetLookupOptions(value_set=texts(missing))

    def convert(array: pa.Array) -> Converted:
        lost = compute.call_function("is_in", [array], options)
        if read.default is None:
            wrong = unpacked(lost.buffers()[1], lost.offset, len(lost))
            return array, _misfits(array, wrong, "is a symbol that the reader's enum does not have")
        default = texts([read.default])[0]
        return compute.call_function("if_else", [lost, default, array]), []

    return convert


def fixed(written: Fixed, read: Fixed) -> Conversion | str:
    """Return the conversion of fixed values; a string says why there is none."""
    if written.size != read.size:
        return f"has {written.size} bytes, which are not read as {read.size}"
    if isinstance(written.logical, Decimal) or isinstance(read.logical, Decimal):
        return decimals(written.logical, read.logical)
    return unchanged
