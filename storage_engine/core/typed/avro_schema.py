"""Columns from an Avro schema: a record whose fields are the columns.

A union with null is nullable; another union has no one type, and is refused. Names of records may
be used again behind their definition; a name without a dot, defined or used, is in the namespace of
the definition around it. Defaults, aliases and documentation are not kept.

Source: the specification of Apache Avro 1.12, primitive, complex and logical types.
"""

from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.bounded_json import (
    JsonObject,
    JsonValue,
    json_integer,
    json_list,
    json_object,
    json_text,
    load_json,
)

_PRIMITIVES: dict[str, types.ColumnType] = {
    "boolean": types.BooleanColumn(),
    "int": types.IntegerColumn(32),
    "long": types.IntegerColumn(64),
    "float": types.FloatColumn(32),
    "double": types.FloatColumn(64),
    "bytes": types.BinaryColumn(),
    "string": types.StringColumn(),
}

_LOGICAL: dict[tuple[str, str], types.ColumnType] = {
    ("int", "date"): types.DateColumn(),
    ("long", "timestamp-millis"): types.TimestampColumn(with_zone=True),
    ("long", "timestamp-micros"): types.TimestampColumn(with_zone=True),
    ("long", "local-timestamp-millis"): types.TimestampColumn(with_zone=False),
    ("long", "local-timestamp-micros"): types.TimestampColumn(with_zone=False),
    ("string", "uuid"): types.StringColumn(),
}

_REFUSED = ("timestamp-nanos", "local-timestamp-nanos", "time-millis", "time-micros", "duration")


def parse_avro(text: str) -> list[types.ColumnSpec]:
    """Return the columns; ConfigError names what can't be one."""
    content = json_object(load_json(text, "the Avro schema"), "the Avro schema")
    if content.get("type") != "record":
        raise ConfigError("the Avro schema must be a record: its fields are the columns")
    fields = _AvroReader().record(content, "", 0)
    return [types.ColumnSpec(field.name, field.type, field.nullable) for field in fields]


class _AvroReader(types.TypeCount):
    """Walks the schema; each type is counted, also where a name stands for it."""

    def __init__(self) -> None:
        super().__init__()
        self._named: dict[str, types.ColumnType | None] = {}
        """The defined types by full name; None: the definition has not ended."""
        self._namespace = ""
        """The namespace of the definition around the type that is being read."""

    def record(self, content: JsonObject, path: str, depth: int) -> list[types.StructColumnField]:
        what = f"'{path}'" if path else "the Avro schema"
        full = self._define(content, what, None)
        around, self._namespace = self._namespace, full.rpartition(".")[0]
        found: list[types.StructColumnField] = []
        for item in json_list(content.get("fields"), f"'fields' of {what}"):
            field = json_object(item, f"a field of {what}")
            name = json_text(field.get("name"), f"the name of a field of {what}")
            inner = printable(f"{path}.{name}"[-200:] if path else name[:200])
            column_type, nullable = self._type(field.get("type"), inner, depth + 1)
            found.append(types.StructColumnField(name, column_type, nullable))
        types.check_field_names(field.name for field in found)
        self._namespace = around
        self._named[full] = types.StructColumn(tuple(found))
        return found

    def _type(self, value: JsonValue, path: str, depth: int) -> tuple[types.ColumnType, bool]:
        """Return the type, and whether it may be null."""
        if isinstance(value, list):
            others = [each for each in value if each != "null"]
            if len(others) != 1:
                raise ConfigError(
                    f"'{path}' is a union of {len(others)} types beside null: name one type"
                )
            return self._single(others[0], path, depth), len(others) < len(value)
        return self._single(value, path, depth), False

    def _single(self, value: JsonValue, path: str, depth: int) -> types.ColumnType:
        self.step(depth)
        if isinstance(value, str):
            return self._by_name(value, path, depth)
        content = json_object(value, f"the type of '{path}'")
        kind = content.get("type")
        if isinstance(kind, dict | list):
            column_type, nullable = self._type(kind, path, depth)
            if nullable:
                raise ConfigError(f"'{path}' has a union inside a type: write the union alone")
            return column_type
        match json_text(kind, f"the type of '{path}'"):
            case "record" | "error":
                return types.StructColumn(tuple(self.record(content, path, depth)))
            case "array":
                return types.ArrayColumn(*self._type(content.get("items"), path, depth + 1))
            case "map":
                self.step(depth)
                value_type, nullable = self._type(content.get("values"), path, depth + 1)
                return types.MapColumn(types.StringColumn(), value_type, nullable)
            case "enum":
                self._define(content, f"'{path}'", types.StringColumn())
                return types.StringColumn()
            case "fixed":
                column_type = _logical(content, "fixed", path)
                self._define(content, f"'{path}'", column_type)
                return column_type
            case name:
                if name in _PRIMITIVES:
                    return _logical(content, name, path)
                return self._by_name(name, path, depth)

    def _define(self, content: JsonObject, what: str, column_type: types.ColumnType | None) -> str:
        """Return the full name of the definition."""
        name = json_text(content.get("name"), f"the name of the Avro type of {what}")
        space = content.get("namespace")
        full = _full_name(name, space if isinstance(space, str) else self._namespace)
        if full in self._named:
            raise ConfigError(f"{what} defines '{printable(full[:80])}' a second time")
        self._named[full] = column_type
        return full

    def _by_name(self, name: str, path: str, depth: int) -> types.ColumnType:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = _full_name(name, self._namespace)
        shown = printable(full[:80])
        if full not in self._named:
            raise ConfigError(f"'{path}' has the type '{shown}', which is not defined before it")
        column_type = self._named[full]
        if column_type is None:
            raise ConfigError(
                f"'{path}' contains its own record '{shown}': a column can't be of that depth"
            )
        self._count_again(column_type, depth)
        return column_type

    def _count_again(self, column_type: types.ColumnType, depth: int) -> None:
        for part in types.parts_of(column_type):
            self.step(depth + 1)
            self._count_again(part, depth + 1)


def _full_name(name: str, namespace: str) -> str:
    """Return the full name; a name with a dot has its own namespace (a leading dot: none)."""
    return name.removeprefix(".") if "." in name or not namespace else f"{namespace}.{name}"


def _logical(content: JsonObject, kind: str, path: str) -> types.ColumnType:
    logical = content.get("logicalType")
    plain = _PRIMITIVES.get(kind, types.BinaryColumn())
    if not isinstance(logical, str):
        return plain
    if logical == "decimal" and kind in ("bytes", "fixed"):
        try:
            return types.DecimalColumn(
                json_integer(content.get("precision"), f"the precision of '{path}'"),
                json_integer(content.get("scale", 0), f"the scale of '{path}'"),
            )
        except ConfigError as error:
            raise ConfigError(f"'{path}': {error}") from error
    if logical in _REFUSED:
        raise ConfigError(
            f"'{path}' has the logical type {logical}, which no column can keep: use "
            "timestamp-micros, long, int or bytes"
        )
    # As Avro has it, a logical type that a reader does not know is left out of account.
    return _LOGICAL.get((kind, logical), plain)
