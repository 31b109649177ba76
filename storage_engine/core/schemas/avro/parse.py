"""Reads the text of an Avro schema into its tree.

A name without a dot, defined or used, is in the namespace of the definition around it. Logical
types that do not fit are left out of account, as Avro has it.

Source: the specification of Apache Avro 1.12, and what Java's parser refuses.
"""

import re
from collections.abc import Mapping
from typing import Literal, get_args

from storage_engine.core.printable import printable
from storage_engine.core.schemas.avro import schema as avro
from storage_engine.core.schemas.avro.defaults import misfit
from storage_engine.core.schemas.avro.logical_types import logical_type
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.json_text import (
    MAX_DEPTH,
    JsonObject,
    JsonValue,
    read_json,
    shown,
)

MAX_NAMES = 10_000
"""The most types with a name that a schema and those that it refers to may define."""
MAX_PARTS = 100_000
"""The most types, fields and symbols of one text."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-?([0-9]{1,300}(\.[0-9]{1,300})?|Infinity)|NaN")
_PRIMITIVES: dict[str, avro.PrimitiveName] = {name: name for name in get_args(avro.PrimitiveName)}
_RESERVED = frozenset(
    ("aliases", "doc", "fields", "items", "name", "namespace", "size", "symbols", "type", "values")
)
_RESERVED_OF_FIELDS = frozenset(("aliases", "default", "doc", "name", "order", "type"))


def parse_avro_schema(
    text: str, referenced: Mapping[str, avro.NamedType] | None = None, *, new: bool = True
) -> avro.AvroSchema:
    """Return the schema; InvalidSchemaError says what is wrong with it. It may use the names in
    `referenced`. In a schema that is not `new`, which somebody has taken once, defaults and
    namespaces are not judged."""
    reader = _AvroReader(referenced or {}, new=new)
    root = reader.whole(read_json(text, "the Avro schema"))
    return avro.AvroSchema(root, reader.names)


class _AvroReader:
    """Walks the text once. `_path` names where it is."""

    def __init__(self, referenced: Mapping[str, avro.NamedType], *, new: bool) -> None:
        self.names: dict[str, avro.NamedType] = dict(referenced)
        self._new = new
        self._open: set[str] = set()
        """The names whose definitions have not ended."""
        self._defaults: list[tuple[avro.AvroType, JsonValue, str]] = []
        self._namespace = ""
        self._path = ""
        self._depth = 0
        self._parts = 0

    def whole(self, value: JsonValue) -> avro.AvroType:
        root = self._type(value)
        if self._new:
            for avro_type, default, path in self._defaults:
                why = misfit(avro_type, default, self.names)
                if why is not None:
                    raise InvalidSchemaError(f"the default of '{path}' does not fit: {why}")
        return root

    @property
    def _what(self) -> str:
        return f"'{self._path}'" if self._path else "the Avro schema"

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > MAX_PARTS:
            raise InvalidSchemaError(f"the Avro schema has more than {MAX_PARTS:,} parts")

    def _type(self, value: JsonValue) -> avro.AvroType:
        self._count(1)
        if self._depth > MAX_DEPTH:
            raise InvalidSchemaError(f"{self._what} is nested more than {MAX_DEPTH} deep")
        self._depth += 1
        try:
            match value:
                case str():
                    return self._by_name(value)
                case list():
                    return self._union(value)
                case dict():
                    return self._written(value)
                case _:
                    raise InvalidSchemaError(
                        f"the type of {self._what} must be a name, an object or a list, and is "
                        f"{shown(value)}"
                    )
        finally:
            self._depth -= 1

    def _by_name(self, name: str) -> avro.AvroType:
        if name in _PRIMITIVES:
            return avro.Primitive(_PRIMITIVES[name])
        full = _full_name(name, self._namespace)
        if full not in self.names and full not in self._open:
            raise InvalidSchemaError(
                f"{self._what} has the type '{printable(full[:80])}', which is not defined before "
                "it"
            )
        return avro.NamedReference(full)

    def _union(self, value: list[JsonValue]) -> avro.Union:
        branches = tuple(self._type(each) for each in value)
        seen: set[str] = set()
        for branch in branches:
            if isinstance(branch, avro.Union):
                raise InvalidSchemaError(
                    f"{self._what} has a union inside a union: write one union"
                )
            kind = kind_of(branch)
            if kind in seen:
                raise InvalidSchemaError(f"{self._what} is a union with '{kind}' twice")
            seen.add(kind)
        return avro.Union(branches)

    def _written(self, content: JsonObject) -> avro.AvroType:
        kind = content.get("type")
        match kind:
            case dict() | list():
                return self._type(kind)
            case "record" | "error":
                return self._record(content)
            case "enum":
                return self._enum(content)
            case "fixed":
                return self._fixed(content)
            case "array":
                items = self._inner(content, "items")
                return avro.Array(items, properties=_properties(content, _RESERVED))
            case "map":
                values = self._inner(content, "values")
                return avro.Map(values, properties=_properties(content, _RESERVED))
            case str() if kind in _PRIMITIVES:
                name = _PRIMITIVES[kind]
                properties = _properties(content, _RESERVED)
                return avro.Primitive(name, logical_type(name, properties), properties=properties)
            case str():
                return self._by_name(kind)
            case None:
                raise InvalidSchemaError(f"{self._what} has an object without 'type'")
            case _:
                raise InvalidSchemaError(
                    f"the type of {self._what} must be a string, and is {shown(kind)}"
                )

    def _inner(self, content: JsonObject, name: str) -> avro.AvroType:
        if name not in content:
            raise InvalidSchemaError(f"{self._what} is of type {content['type']} without '{name}'")
        return self._type(content[name])

    def _define(self, content: JsonObject) -> str:
        """Return the full name of the definition, which is in use from now on."""
        what = f"the name of the Avro type of {self._what}"
        name = self._name(content.get("name"), what)
        space = content.get("namespace")
        full = _full_name(name, space if isinstance(space, str) else self._namespace)
        if full in _PRIMITIVES:
            raise InvalidSchemaError(f"{what} is '{full}', a type of Avro's own")
        self._check_name(full.rpartition(".")[2], what)
        if self._new and "." in full:
            for part in full.split("."):
                self._check_name(part, what)
        if full in self.names or full in self._open:
            raise InvalidSchemaError(f"{self._what} defines '{printable(full[:80])}' a second time")
        if len(self.names) >= MAX_NAMES:
            raise InvalidSchemaError(f"the Avro schema defines more than {MAX_NAMES:,} names")
        return full

    def _name(self, value: JsonValue, what: str) -> str:
        if not isinstance(value, str):
            raise InvalidSchemaError(f"{what} must be a string, and is {shown(value)}")
        return value

    def _check_name(self, name: str, what: str) -> None:
        if _NAME.fullmatch(name) is None:
            raise InvalidSchemaError(
                f"{what} has '{printable(name[:80])}', which is no name of Avro: use letters, "
                "digits and _"
            )

    def _record(self, content: JsonObject) -> avro.Record:
        full = self._define(content)
        self._open.add(full)
        around, self._namespace = self._namespace, full.rpartition(".")[0]
        items = content.get("fields")
        if not isinstance(items, list):
            raise InvalidSchemaError(
                f"'fields' of {self._what} must be a JSON list, and is {shown(items)}"
            )
        fields = tuple(self._field(item) for item in items)
        seen: set[str] = set()
        for field in fields:
            if field.name in seen:
                raise InvalidSchemaError(f"{self._what} has the field '{field.name}' twice")
            seen.add(field.name)
        self._namespace = around
        self._open.discard(full)
        record = avro.Record(
            full_name=full,
            aliases=self._aliases(content, full),
            doc=_text_or_none(content.get("doc")),
            fields=fields,
            is_error=content["type"] == "error",
            properties=_properties(content, _RESERVED),
        )
        self.names[full] = record
        return record

    def _field(self, item: JsonValue) -> avro.Field:
        if not isinstance(item, dict):
            raise InvalidSchemaError(
                f"a field of {self._what} must be a JSON object, and is {shown(item)}"
            )
        name = self._name(item.get("name"), f"the name of a field of {self._what}")
        self._check_name(name, f"a field of {self._what}")
        outer = self._path
        self._path = f"{outer}.{name}"[-200:] if outer else name[:200]
        if "type" not in item:
            raise InvalidSchemaError(f"the field {self._what} has no type")
        avro_type = self._type(item["type"])
        field = avro.Field(
            name=name,
            type=avro_type,
            default=self._default(item, avro_type),
            aliases=self._texts(item.get("aliases"), "aliases"),
            doc=_text_or_none(item.get("doc")),
            order=self._order(item.get("order")),
            properties=_properties(item, _RESERVED_OF_FIELDS),
        )
        self._path = outer
        return field

    def _default(self, item: JsonObject, avro_type: avro.AvroType) -> "JsonValue | avro.NoDefault":
        if "default" not in item:
            return avro.NO_DEFAULT
        value = item["default"]
        if isinstance(value, str) and avro.is_floating(avro_type) and _NUMBER.fullmatch(value):
            # Java's parser takes the text of a number here, and JSON has no other way to say NaN.
            value = float(value)
        self._defaults.append((avro_type, value, self._path))
        return value

    def _order(self, value: JsonValue) -> Literal["ascending", "descending", "ignore"]:
        match value:
            case None | "ascending":
                return "ascending"
            case "descending" | "ignore":
                return value
            case _:
                raise InvalidSchemaError(
                    f"the order of {self._what} must be ascending, descending or ignore, and is "
                    f"{shown(value)}"
                )

    def _enum(self, content: JsonObject) -> avro.Enum:
        full = self._define(content)
        symbols = self._texts(content.get("symbols"), "symbols", required=True)
        for symbol in symbols:
            self._check_name(symbol, f"a symbol of {self._what}")
        if len(set(symbols)) < len(symbols):
            raise InvalidSchemaError(f"the enum of {self._what} has a symbol twice")
        default = _text_or_none(content.get("default"))
        if default is not None and default not in symbols:
            raise InvalidSchemaError(
                f"the default '{printable(default[:80])}' of the enum of {self._what} is none of "
                "its symbols"
            )
        enum = avro.Enum(
            full_name=full,
            aliases=self._aliases(content, full),
            doc=_text_or_none(content.get("doc")),
            symbols=symbols,
            default=default,
            properties=_properties(content, _RESERVED | {"default"}),
        )
        self.names[full] = enum
        return enum

    def _fixed(self, content: JsonObject) -> avro.Fixed:
        full = self._define(content)
        size = content.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
            raise InvalidSchemaError(
                f"the size of the fixed of {self._what} must be a number of bytes, and is "
                f"{shown(size)}"
            )
        properties = _properties(content, _RESERVED)
        fixed = avro.Fixed(
            full_name=full,
            aliases=self._aliases(content, full),
            doc=_text_or_none(content.get("doc")),
            size=size,
            logical=logical_type("fixed", properties, size),
            properties=properties,
        )
        self.names[full] = fixed
        return fixed

    def _aliases(self, content: JsonObject, full: str) -> tuple[str, ...]:
        namespace = full.rpartition(".")[0]
        found = self._texts(content.get("aliases"), "aliases")
        return tuple(_full_name(each, namespace) for each in found)

    def _texts(self, value: JsonValue, name: str, *, required: bool = False) -> tuple[str, ...]:
        if value is None and not required:
            return ()
        if not isinstance(value, list):
            raise InvalidSchemaError(
                f"'{name}' of {self._what} must be a JSON list, and is {shown(value)}"
            )
        self._count(len(value))
        return tuple(self._name(each, f"one of the {name} of {self._what}") for each in value)


def kind_of(avro_type: avro.AvroType) -> str:
    """Return what may stand only once in a union: a full name, or the type's own."""
    match avro_type:
        case avro.Primitive():
            return avro_type.name
        case avro.Array():
            return "array"
        case avro.Map():
            return "map"
        case avro.Union():
            return "union"
        case _:
            return avro_type.full_name


def _full_name(name: str, namespace: str) -> str:
    """Return the full name; a name with a dot has its own namespace (a leading dot: none)."""
    return name.removeprefix(".") if "." in name or not namespace else f"{namespace}.{name}"


def _properties(content: JsonObject, reserved: frozenset[str]) -> dict[str, JsonValue]:
    return {name: value for name, value in content.items() if name not in reserved}


def _text_or_none(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None
