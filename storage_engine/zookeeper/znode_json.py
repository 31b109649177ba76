"""Reading and writing the JSON of znodes.

Content that others wrote is checked field by field, for its type and for its range, before it is
used. So whatever has been decoded can be sent in a request: no number is too large for its field,
no text without a form in UTF-8.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from storage_engine.core.errors import StorageError
from storage_engine.core.ids import topic_name_problem
from storage_engine.core.printable import is_text

JsonValue: TypeAlias = (
    "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
)
Fields = Mapping[str, JsonValue]

BROKER_IDS = range(2**31)
PARTITIONS = range(2**31)
LEADERS = range(-1, 2**31)
"""A broker's id, or -1 for none."""
EPOCHS = range(2**31 - 1)
"""The range of epochs, after each of which another fits into 32 bits."""
BROKER_EPOCHS = range(-1, 2**63)
PORTS = range(1, 2**16)

MAX_NAME_BYTES = 2**15 - 1
"""The longest string whose length fits its field in a request."""
MAX_REPORTED = 5
"""The most problems of one znode that are named."""

_MAX_ERROR_CHARACTERS = 400
"""The longest error: a znode may hold a megabyte, and a name in it may be as long."""


class ZnodeFormatError(StorageError):
    """The data of a znode is not of its documented form."""

    def __init__(self, message: str) -> None:
        if len(message) > _MAX_ERROR_CHARACTERS:
            message = f"{message[:_MAX_ERROR_CHARACTERS]}…"
        super().__init__(message)


def encode_object(fields: Fields) -> bytes:
    """Encode compact JSON, with the keys in the given order."""
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_object(path: str, data: bytes) -> dict[str, JsonValue]:
    """Return the JSON object in a znode."""
    try:
        decoded = json.loads(data)
    except ValueError as error:  # also UnicodeDecodeError, and numbers of thousands of digits
        raise ZnodeFormatError(f"znode {path} holds no JSON: {error}") from None
    except RecursionError:
        raise ZnodeFormatError(f"znode {path} holds no JSON of its form: it is too deep") from None
    if not isinstance(decoded, dict):
        raise ZnodeFormatError(
            f"znode {path} holds {_kind(decoded)} where a JSON object is expected"
        )
    return decoded


def int_field(path: str, fields: Fields, key: str, allowed: range) -> int:
    """Return a whole number of `allowed`, which must be there."""
    value = required_value(path, fields, key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ZnodeFormatError(
            f"znode {path}: '{key}' is {_kind(value)} where a whole number is expected"
        )
    return in_range(path, f"'{key}'", value, allowed)


def in_range(path: str, what: str, value: int, allowed: range) -> int:
    """Return `value`, if it is one of `allowed`."""
    if value not in allowed:
        raise ZnodeFormatError(
            f"znode {path}: {what} is {str(value)[:40]}, not from {allowed[0]} to {allowed[-1]}"
        )
    return value


def str_field(path: str, fields: Fields, key: str, *, max_bytes: int = MAX_NAME_BYTES) -> str:
    """Return a string, which must be there."""
    return text(path, key, required_value(path, fields, key), max_bytes=max_bytes)


def text(path: str, key: str, value: JsonValue, *, max_bytes: int = MAX_NAME_BYTES) -> str:
    """Return `value` as a string of at most `max_bytes` in UTF-8."""
    if not isinstance(value, str):
        raise ZnodeFormatError(
            f"znode {path}: '{key}' is {_kind(value)} where a string is expected"
        )
    if not is_text(value):
        raise ZnodeFormatError(f"znode {path}: '{key}' has characters that are none (surrogates)")
    if len(value.encode()) > max_bytes:
        raise ZnodeFormatError(f"znode {path}: '{key}' is longer than {max_bytes} bytes")
    return value


def topic_field(path: str, fields: Fields, key: str) -> str:
    """Return the name of a topic, which must be there. It becomes a part of other znodes' paths."""
    return legal_topic(path, str_field(path, fields, key))


def legal_topic(path: str, topic: str) -> str:
    """Return `topic`, if it is a legal name."""
    problem = topic_name_problem(topic)
    if problem is not None:
        raise ZnodeFormatError(f"znode {path}: {problem}")
    return topic


def number_named(name: str, allowed: range) -> int | None:
    """Return the number in the name of a znode or in the key of an object; None when it is none of
    `allowed`, or not in its shortest form."""
    if not (name.isascii() and name.isdigit() and len(name) <= len(str(allowed[-1]))):
        return None
    number = int(name)
    return number if number in allowed and str(number) == name else None


def broker_ids(path: str, key: str, value: JsonValue) -> tuple[int, ...]:
    """Return `value` as broker ids, each once."""
    if not isinstance(value, list) or not all(_is_int(item) for item in value):
        raise ZnodeFormatError(f"znode {path}: '{key}' must be a list of whole numbers")
    for item in value:
        in_range(path, f"a broker of '{key}'", item, BROKER_IDS)
    if len(set(value)) != len(value):
        raise ZnodeFormatError(f"znode {path}: '{key}' names a broker twice")
    return tuple(value)


def reported(problems: Sequence[str]) -> tuple[str, ...]:
    """Return as many of the problems as the log has room for."""
    if len(problems) <= MAX_REPORTED:
        return tuple(problems)
    return (*problems[:MAX_REPORTED], f"and {len(problems) - MAX_REPORTED} more of that znode")


def entries(path: str, fields: Fields, key: str) -> list[JsonValue]:
    """Return a list, which must be there; its reader checks the items one by one."""
    value = required_value(path, fields, key)
    if not isinstance(value, list):
        raise ZnodeFormatError(f"znode {path}: '{key}' must be a list")
    return value


def object_field(path: str, fields: Fields, key: str) -> dict[str, JsonValue]:
    """Return an object, which must be there; its reader checks the values one by one."""
    value = required_value(path, fields, key)
    if not isinstance(value, dict):
        raise ZnodeFormatError(
            f"znode {path}: '{key[:MAX_KEY]}' is {_kind(value)} where an object is expected"
        )
    return value


MAX_KEY = 100
"""The most characters of a key that an error names."""


def str_map(path: str, fields: Fields, key: str) -> dict[str, str]:
    """Return an object of strings, which must be there."""
    value = required_value(path, fields, key)
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ZnodeFormatError(f"znode {path}: '{key}' must be an object of strings")
    if not all(is_text(name) and is_text(item) for name, item in value.items()):
        raise ZnodeFormatError(f"znode {path}: '{key}' has characters that are none (surrogates)")
    return value


def required_value(path: str, fields: Fields, key: str) -> JsonValue:
    """Return a value of any type, which must be there."""
    if key not in fields:
        raise ZnodeFormatError(f"znode {path} lacks the key '{key}'")
    return fields[key]


def _is_int(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
