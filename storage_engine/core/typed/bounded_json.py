"""Reads JSON texts that others wrote: schemas of topics, Avro schemas, JSON Schemas.

Whatever the text is, the outcome is a value or a ConfigError of one line.
"""

import json
from collections.abc import Iterable

from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable
from storage_engine.core.schemas.json_text import JsonObject, JsonValue, shown, size_problem

__all__ = ["JsonObject", "JsonValue", "shown"]

MAX_SCHEMA_BYTES = 256 * 1024
"""The longest text of a schema, in UTF-8. A topic's settings are in one znode, as JSON, where a
character may take 6 bytes for 2 of these; a znode has room for 1 MiB."""


def check_text_size(text: str, what: str) -> None:
    """ConfigError for a text that is too long, or that UTF-8 can't encode."""
    remedy = ": use fewer columns or shorter names"
    problem = size_problem(text, MAX_SCHEMA_BYTES, remedy=remedy)
    if problem is not None:
        raise ConfigError(f"{what} {problem}")


def load_json(text: str, what: str) -> JsonValue:
    """Return the value of a JSON text."""
    check_text_size(text, what)
    try:
        value: JsonValue = json.loads(text)
        return value
    except RecursionError:
        raise ConfigError(f"{what} is nested too deep: use fewer levels") from None
    except ValueError as error:
        raise ConfigError(f"{what} is no JSON: {printable(str(error))}") from error


def json_object(value: JsonValue, what: str) -> JsonObject:
    """Return the value, which must be an object."""
    if not isinstance(value, dict):
        raise ConfigError(f"{what} must be a JSON object, and is {shown(value)}")
    return value


def json_list(value: JsonValue, what: str) -> list[JsonValue]:
    """Return the value, which must be a list."""
    if not isinstance(value, list):
        raise ConfigError(f"{what} must be a JSON list, and is {shown(value)}")
    return value


def json_text(value: JsonValue, what: str) -> str:
    """Return the value, which must be a string."""
    if not isinstance(value, str):
        raise ConfigError(f"{what} must be a string, and is {shown(value)}")
    return value


def json_integer(value: JsonValue, what: str) -> int:
    """Return the value, which must be a whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{what} must be a whole number, and is {shown(value)}")
    return value


def json_boolean(value: JsonValue, what: str) -> bool:
    """Return the value, which must be true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{what} must be true or false, and is {shown(value)}")
    return value


def only_fields(value: JsonObject, allowed: Iterable[str], what: str) -> None:
    """ConfigError for a field that nobody would read."""
    known = set(allowed)
    for name in value:
        if name not in known:
            raise ConfigError(
                f"{what} has a field '{printable(name[:80])}', which is none of "
                f"{', '.join(sorted(known))}"
            )
