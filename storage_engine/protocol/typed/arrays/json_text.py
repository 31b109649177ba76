"""Columns as JSON text, by Arrow's kernels: an array of values becomes an array of their texts.

    column                  JSON
    BOOLEAN                 true, false
    integers, DECIMAL       number, a DECIMAL with all digits of its scale and without an exponent
    FLOAT, DOUBLE           number; "NaN", "Infinity", "-Infinity"
    STRING                  string
    BINARY                  string, base64
    DATE                    "2026-01-31"
    TIMESTAMP               "2026-01-31T12:00:00.000001Z"; TIMESTAMP_NTZ without the Z
    INTERVAL                number of microseconds
    ARRAY                   array
    STRUCT                  object
    MAP<STRING, ...>        object
    other MAP               array of {"key": ..., "value": ...}
    null                    null

Years have four digits from 0001 to 9999; others have a sign and six digits, as in ISO 8601.
"""

import binascii
import json
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from storage_engine.core.typed import column_types as types
from storage_engine.protocol.records.arrow_binary import binary_scalar
from storage_engine.protocol.records.arrow_kernels import as_type, compute, kernel
from storage_engine.protocol.typed.nested_arrays import (
    binary_values,
    list_lengths,
    map_as_list,
    one_value,
)

_QUOTED_ESCAPES = (("\\", "\\\\"), ('"', '\\"'))
_CONTROL_ESCAPES = tuple((chr(code), json.dumps(chr(code))[1:-1]) for code in range(0x20))
_NEEDS_ESCAPE = compute.MatchSubstringOptions('[\\x00-\\x1f"\\\\]')
_IS_CONTROL = compute.MatchSubstringOptions("[\\x00-\\x1f]")
_TIME_SEPARATOR = compute.ReplaceSliceOptions(10, 11, "T")

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""
_DAY_US = 86_400_000_000
_EXPONENT, _MINUS = compute.MatchSubstringOptions("E"), compute.MatchSubstringOptions("-")
_WHOLE = pa.decimal128(38, 0)
_NO_NUMBERS = (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"'))


def text(value: str) -> pa.Scalar:
    """Return a pa.StringScalar."""
    return as_type(binary_scalar(value.encode()), pa.string())


_NULL = text("null")
_EMPTY = text("")
_QUOTE = text('"')
_COMMA = text(",")


def joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Join texts, row by row: arrays without nulls, and scalars."""
    return kernel("binary_join_element_wise", *parts, _EMPTY)


def json_texts(array: pa.Array, column_type: types.ColumnType) -> pa.Array:
    """Return a pa.StringArray with the JSON of each value. No text is null."""
    match column_type:
        case types.ArrayColumn(element, _):
            texts = json_lists(array, json_texts(array.flatten(), element))
        case types.MapColumn():
            texts = _maps(array, column_type)
        case types.StructColumn(fields):
            parts = [array.field(n) for n in range(len(fields))]
            names = [field.name for field in fields]
            texts = json_objects(
                names, [json_texts(p, f.type) for p, f in zip(parts, fields, strict=True)]
            )
        case types.StringColumn():
            texts = joined(_QUOTE, _with_text(_escaped(array)), _QUOTE)
        case (
            types.BooleanColumn()
            | types.IntegerColumn()
            | types.DecimalColumn()
            | types.IntervalColumn()
        ):
            return _with_text(plain_texts(array, column_type), "null")
        case types.FloatColumn():
            return _with_text(_floats(array), "null")
        case _:
            texts = joined(_QUOTE, _with_text(plain_texts(array, column_type)), _QUOTE)
    return with_nulls(texts, array)


def json_objects(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """Return a JSON object of these fields for each row, from the JSON texts of the columns, of
    which there is at least one."""
    parts: list[pa.Array | pa.Scalar] = []
    for n, (name, column) in enumerate(zip(names, columns, strict=True)):
        lead = "{" if n == 0 else ","
        parts += (text(f"{lead}{json.dumps(name, ensure_ascii=False)}:"), column)
    return joined(*parts, text("}"))


def plain_texts(array: pa.Array, column_type: types.ColumnType) -> pa.Array:
    """Return the texts of values that are not nested, without quotes and escapes; null for a
    null."""
    match column_type:
        case types.StringColumn():
            return array
        case types.BinaryColumn():
            return _base64(array)
        case types.IntervalColumn():
            return as_type(array.view(pa.int64()), pa.string())
        case types.DecimalColumn(_, scale):
            return _decimals(array, scale)
        case types.DateColumn():
            days = array.view(pa.int32())
            return _times(as_type(array, pa.string()), as_type(days, pa.int64()), "D", 1)
        case types.TimestampColumn(with_zone):
            times = array.view(pa.int64())
            texts = as_type(times.view(pa.timestamp("us")), pa.string())
            texts = kernel("binary_replace_slice", texts, options=_TIME_SEPARATOR)
            texts = _times(texts, times, "us", _DAY_US)
            return joined(texts, text("Z")) if with_zone else texts
        case _:
            return as_type(array, pa.string())


def _with_text(array: pa.Array, instead: str = "") -> pa.Array:
    return kernel("coalesce", array, text(instead)) if array.null_count else array


def with_nulls(texts: pa.Array, array: pa.Array) -> pa.Array:
    """Return "null" where the array has a null."""
    if not array.null_count:
        return texts
    return kernel("if_else", kernel("is_valid", array), texts, _NULL)


def _escaped(array: pa.Array) -> pa.Array:
    """Escape what JSON does not allow within a string."""
    if not _any(kernel("match_substring_regex", array, options=_NEEDS_ESCAPE)):
        return array
    escapes: tuple[tuple[str, str], ...] = _QUOTED_ESCAPES
    if _any(kernel("match_substring_regex", array, options=_IS_CONTROL)):
        escapes += _CONTROL_ESCAPES
    for character, escape in escapes:
        options = compute.ReplaceSubstringOptions(character, escape)
        array = kernel("replace_substring", array, options=options)
    return array


def _any(array: pa.Array) -> bool:
    return bool(kernel("any", array).as_py())


def _floats(array: pa.Array) -> pa.Array:
    texts = as_type(array, pa.string())
    if _any(kernel("invert", kernel("is_finite", array))):
        for found, written in _NO_NUMBERS:
            texts = kernel("if_else", kernel("equal", texts, text(found)), text(written), texts)
    return texts


def _decimals(array: pa.Array, scale: int) -> pa.Array:
    """Write out the decimals that Arrow gives an exponent, 0E-8 among them: they are nearer to 0
    than a millionth."""
    texts = as_type(array, pa.string())
    has_exponent = kernel("match_substring", texts, options=_EXPONENT)
    if not _any(has_exponent):
        return texts
    rows = kernel("filter", array, has_exponent)
    whole = pa.Array.from_buffers(_WHOLE, len(rows), rows.buffers(), offset=rows.offset)
    digits = as_type(whole, pa.string())
    is_negative = kernel("starts_with", digits, options=_MINUS)
    unsigned = kernel("binary_replace_slice", digits, options=compute.ReplaceSliceOptions(0, 1, ""))
    digits = kernel("if_else", is_negative, unsigned, digits)
    padded = kernel("ascii_lpad", digits, options=compute.PadOptions(scale, "0"))
    written = joined(kernel("if_else", is_negative, text("-0."), text("0.")), padded)
    return kernel("replace_with_mask", texts, kernel("coalesce", has_exponent, _FALSE), written)


def json_lists(array: pa.Array, elements: pa.Array, *, brackets: str = "[]") -> pa.Array:
    """Join the texts of the elements of each list of `array`, which has none for a null."""
    ends = np.zeros(len(array) + 1, np.int32)
    np.cumsum(list_lengths(array), out=ends[1:])
    lists = pa.Array.from_buffers(
        pa.list_(pa.string()), len(array), [None, pa.py_buffer(ends)], children=[elements]
    )
    return joined(text(brackets[0]), kernel("binary_join", lists, _COMMA), text(brackets[1]))


def _maps(array: pa.Array, column_type: types.MapColumn) -> pa.Array:
    entries = map_as_list(array)
    parts = entries.flatten()
    keys, values = parts.field(0), json_texts(parts.field(1), column_type.value)
    names = json_texts(keys, column_type.key)
    if isinstance(column_type.key, types.StringColumn):
        return json_lists(entries, joined(names, text(":"), values), brackets="{}")
    return json_lists(entries, json_objects(("key", "value"), (names, values)))


def _times(texts: pa.Array, numbers: pa.Array, unit: str, day: int) -> pa.Array:
    """Replace the texts of years that don't have four digits. They are rare, so that it may cost
    more."""
    least = one_value(pa.int64(), struct.pack("<q", _FIRST_DAY * day))
    end = one_value(pa.int64(), struct.pack("<q", (_LAST_DAY + 1) * day))
    outside = kernel("or", kernel("less", numbers, least), kernel("greater_equal", numbers, end))
    if not _any(outside):
        return texts
    rows = kernel("filter", numbers, outside)
    found = np.frombuffer(rows.buffers()[1], np.int64)[rows.offset :][: len(rows)]
    days, within = np.divmod(found, day)
    written = [_with_sign(each) for each in np.datetime_as_string(days.view("datetime64[D]"))]
    if unit == "us":
        clock = np.datetime_as_string(within.view("datetime64[us]"))
        written = [date + each[10:] for date, each in zip(written, clock, strict=True)]
    replacement = as_type(binary_values([each.encode() for each in written]), pa.string())
    return kernel("replace_with_mask", texts, kernel("coalesce", outside, _FALSE), replacement)


def _with_sign(date: str) -> str:
    """Return a date of a year that has not four digits as ISO 8601 has it."""
    year, month, day = date.rsplit("-", 2)
    return f"{int(year):+07d}-{month}-{day}"


_FALSE = one_value(pa.bool_(), b"\x00")


def _base64(array: pa.Array) -> pa.Array:
    texts = binary_values(
        [
            b"" if each is None else binascii.b2a_base64(each, newline=False)
            for each in array.to_pylist()
        ]
    )
    if array.null_count:
        nothing = pa.nulls(len(array), pa.binary())
        texts = kernel("if_else", kernel("is_valid", array), texts, nothing)
    return as_type(texts, pa.string())
