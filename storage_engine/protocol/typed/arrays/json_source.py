"""Rewrites JSON that Arrow's parser can't read as it is: the parser takes no object for a MAP, and
no text for NaN.

Objects of maps whose keys are strings become arrays of {"key": ..., "value": ...}; and "NaN",
"Infinity" and "-Infinity" lose their quotes where a number is due, since Arrow reads the bare
words. Python reads only the records that may need this; for others, it searches their text. A value
that does not fit its type is left as it is, and the parser refuses it.
"""

import json
from collections.abc import Callable
from typing import TypeAlias

from storage_engine.core.typed.column_types import (
    ArrayColumn,
    ColumnType,
    FloatColumn,
    MapColumn,
    StringColumn,
    StructColumn,
    parts_of,
)

NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_NO_NUMBER_TEXTS = tuple(b'"%s"' % word.encode() for word in NO_NUMBERS)

Json: TypeAlias = "bool | str | list[Json] | Members | None"
"""A JSON value as read; a number is a `Number`."""

Write = Callable[[Json], str]


class UnreadableJsonError(ValueError):
    """The text is no JSON, or nothing that a schema can have."""


class Number(str):
    """A number as it is written."""


class Members(list[tuple[str, "Json"]]):
    """An object as the list of its members."""


def loaded(value: bytes) -> Json:
    """Return the value of a JSON text; UnreadableJsonError for what is none."""
    try:
        content: Json = json.loads(
            value.decode(),
            object_pairs_hook=Members,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_number,
        )
        return content
    except RecursionError:
        raise UnreadableJsonError("it is nested too deep") from None
    except ValueError as error:
        raise UnreadableJsonError(str(error)) from None


def _number(text: str) -> Number:
    """Return the number as it is written. Python code, so that other threads run between calls."""
    return Number(text)


class Rewriter:
    """Rewrites objects of one type."""

    def __init__(self, record: StructColumn) -> None:
        self.has_maps, self._has_floats = _has_maps(record), _has_floats(record)
        self._write = _writer(record)

    @property
    def has_work(self) -> bool:
        """Whether any object of the type may need it."""
        return self.has_maps or self._has_floats

    def needs(self, value: bytes) -> bool:
        """Whether Arrow may be unable to read the object, or one of several, as it is."""
        if self.has_maps and value.count(b"{") > 1:
            return True
        return self._has_floats and any(word in value for word in _NO_NUMBER_TEXTS)

    def rewritten(self, value: bytes) -> bytes:
        """Return the object for Arrow's parser; UnreadableJsonError for what is no JSON."""
        content = loaded(value)
        try:
            return self._write(content).encode()
        except RecursionError:
            raise UnreadableJsonError("it is nested too deep") from None


def _has_maps(column_type: ColumnType) -> bool:
    match column_type:
        case MapColumn(StringColumn(), _, _):
            return True
    return any(map(_has_maps, parts_of(column_type)))


def _has_floats(column_type: ColumnType) -> bool:
    return isinstance(column_type, FloatColumn) or any(map(_has_floats, parts_of(column_type)))


def _writer(column_type: ColumnType) -> Write:
    """Return a function that writes values of the type."""
    match column_type:
        case FloatColumn():
            return lambda value: value if value in NO_NUMBERS else _plain(value)
        case ArrayColumn(element, _):
            return _list_writer(_writer(element))
        case MapColumn(StringColumn(), inner, _):
            return _map_writer(_writer(inner))
        case MapColumn(key, inner, _):
            entry = {"key": _writer(key), "value": _writer(inner)}
            return _list_writer(_object_writer(entry))
        case StructColumn(fields):
            return _object_writer({each.name: _writer(each.type) for each in fields})
        case _:
            return _plain


def _list_writer(element: Write) -> Write:
    def write(value: Json) -> str:
        if not isinstance(value, list) or isinstance(value, Members):
            return _plain(value)
        return f"[{','.join(map(element, value))}]"

    return write


def _map_writer(inner: Write) -> Write:
    def write(value: Json) -> str:
        if not isinstance(value, Members):
            return _plain(value)
        entries = (f'{{"key":{json.dumps(key)},"value":{inner(each)}}}' for key, each in value)
        return f"[{','.join(entries)}]"

    return write


def _object_writer(fields: dict[str, Write]) -> Write:
    def write(value: Json) -> str:
        if not isinstance(value, Members):
            return _plain(value)
        members = (f"{json.dumps(name)}:{fields.get(name, _plain)(each)}" for name, each in value)
        return f"{{{','.join(members)}}}"

    return write


def _plain(value: Json) -> str:
    """Write a value as it was read."""
    match value:
        case Number():
            return value
        case Members():
            return _write_any_object(value)
        case list():
            return _write_any_list(value)
        case _:
            return json.dumps(value)


_write_any_object = _object_writer({})
_write_any_list = _list_writer(_plain)
