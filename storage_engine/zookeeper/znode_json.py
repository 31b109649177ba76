"""Reading and writing the JSON of znodes.

Rule: what others wrote is checked field by field before it is used.
"""

import json
from typing import Any

from storage_engine.core.errors import StorageError


class ZnodeFormatError(StorageError):
    """A znode's data is not of its documented form."""


def encode_object(fields: dict[str, Any]) -> bytes:
    """Compact JSON, keys in the order given."""
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_object(path: str, data: bytes) -> dict[str, Any]:
    """The JSON object in a znode."""
    try:
        decoded = json.loads(data)
    except ValueError as error:  # also UnicodeDecodeError
        raise ZnodeFormatError(f"znode {path} holds no JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise ZnodeFormatError(
            f"znode {path} holds {_kind(decoded)} where a JSON object is expected"
        )
    return decoded


def int_field(path: str, fields: dict[str, Any], key: str) -> int:
    """A whole number that must be there."""
    value = _required(path, fields, key)
    if not _is_int(value):
        raise ZnodeFormatError(
            f"znode {path}: '{key}' is {_kind(value)} where a whole number is expected"
        )
    return int(value)


def str_field(path: str, fields: dict[str, Any], key: str) -> str:
    """A string that must be there."""
    value = _required(path, fields, key)
    if not isinstance(value, str):
        raise ZnodeFormatError(
            f"znode {path}: '{key}' is {_kind(value)} where a string is expected"
        )
    return value


def int_list(path: str, key: str, value: object) -> tuple[int, ...]:
    """`value` as broker ids."""
    if not isinstance(value, list) or not all(_is_int(item) for item in value):
        raise ZnodeFormatError(f"znode {path}: '{key}' must be a list of whole numbers")
    return tuple(value)


def object_list(path: str, fields: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """A list of JSON objects that must be there."""
    value = _required(path, fields, key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ZnodeFormatError(f"znode {path}: '{key}' must be a list of objects")
    return value


def str_map(path: str, fields: dict[str, Any], key: str) -> dict[str, str]:
    """An object of strings that must be there."""
    value = _required(path, fields, key)
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ZnodeFormatError(f"znode {path}: '{key}' must be an object of strings")
    return value


def required_value(path: str, fields: dict[str, Any], key: str) -> Any:
    """A value of any type that must be there."""
    return _required(path, fields, key)


def _required(path: str, fields: dict[str, Any], key: str) -> Any:
    if key not in fields:
        raise ZnodeFormatError(f"znode {path} lacks the key '{key}'")
    return fields[key]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value: object) -> str:
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
