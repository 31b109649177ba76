"""Finds the fault in one JSON record, for the error message about the first that does not fit.

Only this one record is read by Python; whether a record fits is decided by Arrow.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Container, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation

from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.topic_schema import SchemaColumn
from storage_engine.protocol.typed.arrays.json_source import (
    NO_NUMBERS,
    Json,
    Members,
    Number,
    UnreadableJsonError,
    loaded,
)
from storage_engine.protocol.typed.row_errors import shown

MOST_BYTES = 64 << 10
"""The longest value that is searched for a fault: Python takes seconds for the numbers of some
megabytes, in which nothing else of the broker runs."""

MOST_DIGITS = 20
"""More digits than any integer of a column has."""

_FLOAT_MAX = 3.4028235677973366e38
_ZONE = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")


class _FaultError(Exception):
    """A fault, by its path and the end of a sentence about it."""


def fault_of(value: bytes, columns: Sequence[SchemaColumn]) -> tuple[str, str]:
    """Return the column that is wrong, if one is, and a sentence's end that says so; an empty one
    when nothing was found."""
    if len(value) > MOST_BYTES:
        return "", ""
    try:
        content = loaded(value)
    except UnreadableJsonError as error:
        return "", f"its value is no JSON object: {shown(str(error))}"
    if not isinstance(content, Members):
        return "", f"its value must be a JSON object, and is {shown(_written(content))}"
    known = {column.name: column for column in columns}
    try:
        _check_members(content, known)
        for name, each in content:
            column = known[name]
            if each is not None:
                _check(each, column.type, name)
    except _FaultError as error:
        path, reason = error.args
        return path.split(".")[0], f"the column '{shown(path)}' {reason}"
    return "", ""


def _check_members(members: Members, known: Container[str] | None, path: str = "") -> None:
    """_FaultError for a member that stands twice, or is not known."""
    seen = set()
    for name, _ in members:
        if name in seen:
            raise _FaultError(f"{path}{name}", "stands twice in it: send it once")
        if known is not None and name not in known:
            raise _FaultError(f"{path}{name}", "is not in the topic's schema: drop or add it")
        seen.add(name)


def _check(value: Json, column_type: types.ColumnType, path: str) -> None:
    """_FaultError when the value is not one of the type."""
    match column_type:
        case types.ArrayColumn(element, _):
            for each in _elements(value, path, column_type):
                if each is not None:
                    _check(each, element, f"{path}.element")
        case types.MapColumn(types.StringColumn(), inner, _):
            members = _members(value, path, column_type)
            _check_members(members, None, f"{path}.")
            for name, each in members:
                if each is not None:
                    _check(each, inner, f"{path}.{name}")
        case types.MapColumn(key, inner, _):
            entry = types.StructColumn(
                (types.StructColumnField("key", key), types.StructColumnField("value", inner))
            )
            _check(value, types.ArrayColumn(entry), path)
        case types.StructColumn(fields):
            members = _members(value, path, column_type)
            known = {field.name: field for field in fields}
            _check_members(members, known, f"{path}.")
            for name, each in members:
                if each is not None:
                    _check(each, known[name].type, f"{path}.{name}")
        case _:
            if not _is_valid(value, column_type):
                raise _misfit(value, path, column_type)


def _elements(value: Json, path: str, column_type: types.ColumnType) -> list[Json]:
    if isinstance(value, list) and not isinstance(value, Members):
        return value
    raise _misfit(value, path, column_type)


def _members(value: Json, path: str, column_type: types.ColumnType) -> Members:
    if isinstance(value, Members):
        return value
    raise _misfit(value, path, column_type)


def _misfit(value: Json, path: str, column_type: types.ColumnType) -> _FaultError:
    return _FaultError(
        path, f"of type {types.ddl_of(column_type)} can't hold {shown(_written(value))}"
    )


def _is_valid(value: Json, column_type: types.ColumnType) -> bool:
    text = value if isinstance(value, str) and not isinstance(value, Number) else None
    match column_type:
        case types.BooleanColumn():
            return isinstance(value, bool)
        case types.IntegerColumn() | types.IntervalColumn():
            bits = column_type.bits if isinstance(column_type, types.IntegerColumn) else 64
            return isinstance(value, Number) and _fits_integer(value, bits)
        case types.FloatColumn(bits):
            if text is not None:
                return text in NO_NUMBERS
            if not isinstance(value, Number):
                return False
            number = float(value)
            return (bits == 64 and math.isfinite(number)) or abs(number) < _FLOAT_MAX
        case types.DecimalColumn():
            return isinstance(value, str) and _fits_decimal(value, column_type)
        case types.StringColumn():
            return text is not None
        case _:
            return text is not None and _fits_text(text, column_type)


def _fits_integer(value: str, bits: int) -> bool:
    number = Decimal(value)
    # A number with a great exponent has as many digits.
    if not number.is_finite() or number.adjusted() > MOST_DIGITS or number % 1:
        return False
    return -(1 << (bits - 1)) <= int(number) < 1 << (bits - 1)


def _fits_decimal(value: str, column_type: types.DecimalColumn) -> bool:
    try:
        number = Decimal(value)
    except InvalidOperation:
        return False
    if not number.is_finite():
        return False
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    whole = len(digits) + exponent
    return -exponent <= column_type.scale and whole <= column_type.precision - column_type.scale


def _fits_text(value: str, column_type: types.ColumnType) -> bool:
    try:
        match column_type:
            case types.BinaryColumn():
                base64.b64decode(value, validate=True)
            case types.DateColumn():
                date.fromisoformat(value)
            case types.TimestampColumn(with_zone):
                datetime.fromisoformat(value)
                return bool(_ZONE.search(value)) == with_zone
    except (ValueError, binascii.Error):
        return False
    return True


def _written(value: Json) -> str:
    """Return a value about as it stands in the record."""
    if isinstance(value, Number) or value is None or isinstance(value, bool):
        return str(value) if isinstance(value, Number) else json.dumps(value)
    if isinstance(value, Members):
        return "an object"
    return "an array" if isinstance(value, list) else json.dumps(value, ensure_ascii=False)
