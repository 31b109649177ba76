"""Reads the JSON of schemas that others wrote.

Whatever the text is, the outcome is a value or an InvalidSchemaError of one line.
"""

import json
import math
from typing import TypeAlias

from storage_engine.core.printable import is_text, printable
from storage_engine.core.schemas.errors import InvalidSchemaError

MAX_SCHEMA_BYTES = 1024 * 1024
"""The longest text of a schema, in UTF-8: what a record of a topic with default settings holds."""
MAX_DEPTH = 64
"""How deep types stand in each other, and values of JSON in each other four times that."""
_MAX_DIGITS = 1000

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = "dict[str, JsonValue]"


def size_problem(text: str, most_bytes: int, *, remedy: str = "") -> str | None:
    """Return what is wrong with a text that has more than `most_bytes` in UTF-8, for which `remedy`
    helps, or that can't be encoded; None: nothing."""
    if len(text) <= most_bytes:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            return "has half a character in it: write it in UTF-8"
        if size <= most_bytes:
            return None
    return f"has more than {most_bytes // 1024} KiB{remedy}"


def check_text_size(text: str, what: str) -> None:
    """InvalidSchemaError for a text that is too long, or that UTF-8 can't encode."""
    problem = size_problem(text, MAX_SCHEMA_BYTES)
    if problem is not None:
        raise InvalidSchemaError(f"{what} {problem}")


def read_json(text: str, what: str) -> JsonValue:
    """Return the value of a JSON text."""
    check_text_size(text, what)
    try:
        value: JsonValue = json.loads(
            text, parse_int=_integer, parse_float=_finite, parse_constant=_refuse
        )
    except RecursionError:
        raise InvalidSchemaError(f"{what} is nested too deep") from None
    except ValueError as error:
        raise InvalidSchemaError(f"{what} is no JSON: {printable(str(error))}") from None
    _check_depth(value, what)
    if "\\u" in text and not is_text(compact_json(value)):
        raise InvalidSchemaError(f"{what} has half a character in it")
    return value


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError("a number beyond all that a double can hold")
    return value


def _refuse(constant: str) -> JsonValue:
    raise ValueError(f"{constant} is no value of JSON")


def _check_depth(value: JsonValue, what: str) -> None:
    level: list[JsonValue] = [value]
    for _ in range(4 * MAX_DEPTH):
        inner: list[JsonValue] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        if not inner:
            return
        level = inner
    raise InvalidSchemaError(f"{what} is nested too deep")


def shown(value: JsonValue) -> str:
    """Return the beginning of a value in one line."""
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return f"'{printable(value[:80])}'"
        case int() if not -(10**30) < value < 10**30:
            return "a very large number"
        case _:
            return json.dumps(value)


def compact_json(value: JsonValue) -> str:
    """Return the text without white space, each character as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sorted_json(value: JsonValue) -> JsonValue:
    """Return the value with the fields of each object in the order of their names."""
    match value:
        case dict():
            return {name: sorted_json(value[name]) for name in sorted(value)}
        case list():
            return [sorted_json(each) for each in value]
        case _:
            return value
