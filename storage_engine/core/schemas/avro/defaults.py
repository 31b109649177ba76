"""Whether a default fits the type of its field.

Source: the specification of Apache Avro 1.12, the table of field default values.
"""

from collections.abc import Iterable, Mapping
from typing import TypeGuard

from storage_engine.core.schemas.avro import schema as avro
from storage_engine.core.schemas.json_text import MAX_DEPTH, JsonObject, JsonValue, shown

_BITS = {"int": 31, "long": 63}


def misfit(
    avro_type: avro.AvroType, value: JsonValue, names: Mapping[str, avro.NamedType]
) -> str | None:
    """Return why `value` is no default of the type, in words; None: it is one. The default of a
    union fits one of its branches, and that of a record may leave out fields that have defaults.
    """
    return _DefaultJudge(names).misfit(avro_type, value)


class _DefaultJudge:
    """Judges each part of a value once for each type, also where unions lead to it on many ways."""

    def __init__(self, names: Mapping[str, avro.NamedType]) -> None:
        self._names = names
        self._known: dict[tuple[int, int], str | None] = {}
        self._depth = 0

    def misfit(self, avro_type: avro.AvroType, value: JsonValue) -> str | None:
        if isinstance(avro_type, avro.NamedReference):
            avro_type = self._names[avro_type.full_name]
        key = id(avro_type), id(value)
        if key not in self._known:
            if self._depth > 2 * MAX_DEPTH:
                return f"it is nested more than {2 * MAX_DEPTH} deep"
            self._depth += 1
            self._known[key] = self._judge(avro_type, value)
            self._depth -= 1
        return self._known[key]

    def _judge(self, avro_type: avro.AvroType, value: JsonValue) -> str | None:
        match avro_type:
            case avro.Union():
                fits = any(self.misfit(each, value) is None for each in avro_type.branches)
                return None if fits else _wanted("of one of the union's types", value)
            case avro.Array():
                if not isinstance(value, list):
                    return _wanted("a list", value)
                return _first(self.misfit(avro_type.items, each) for each in value)
            case avro.Map():
                if not isinstance(value, dict):
                    return _wanted("an object", value)
                return _first(self.misfit(avro_type.values, each) for each in value.values())
            case avro.Record():
                if not isinstance(value, dict):
                    return _wanted(f"an object, as {avro_type.full_name} is a record", value)
                return _first(self._of_field(field, value) for field in avro_type.fields)
            case avro.Enum():
                fits = isinstance(value, str) and value in avro_type.symbols
                return None if fits else _wanted(f"a symbol of {avro_type.full_name}", value)
            case avro.Fixed():
                fits = _is_bytes(value) and len(value) == avro_type.size
                return None if fits else _wanted(f"a string of {avro_type.size} bytes", value)
            case avro.Primitive():
                return _of_primitive(avro_type.name, value)
            case avro.NamedReference():
                raise AssertionError("a name stands for no name")

    def _of_field(self, field: avro.Field, value: JsonObject) -> str | None:
        if field.name in value:
            return self.misfit(field.type, value[field.name])
        return (
            f"its field '{field.name}' is not there" if field.default is avro.NO_DEFAULT else None
        )


def _of_primitive(name: avro.PrimitiveName, value: JsonValue) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match name:
        case "null":
            return None if value is None else _wanted("null", value)
        case "boolean":
            return None if isinstance(value, bool) else _wanted("true or false", value)
        case "int" | "long":
            bound = 2 ** _BITS[name]
            fits = isinstance(value, int) and is_number and -bound <= value < bound
            return None if fits else _wanted(f"a whole number that {name} can hold", value)
        case "float" | "double":
            return None if is_number else _wanted("a number", value)
        case "bytes":
            return None if _is_bytes(value) else _wanted("a string of bytes up to \\u00ff", value)
        case "string":
            return None if isinstance(value, str) else _wanted("a string", value)


def _is_bytes(value: JsonValue) -> TypeGuard[str]:
    return isinstance(value, str) and all(character <= "\xff" for character in value)


def _wanted(what: str, value: JsonValue) -> str:
    return f"it must be {what}, and is {shown(value)}"


def _first(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)
