"""Columns from an Avro schema: a record whose fields are the columns.

A union with null is nullable; another union has no one type, and is refused. Defaults, aliases and
documentation are not kept. Types that Avro does not have are known by the attributes that
`avro_text.py` writes.

Source: the specification of Apache Avro 1.12, primitive, complex and logical types.
"""

from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable
from storage_engine.core.schemas.avro import schema as avro
from storage_engine.core.schemas.avro.parse import parse_avro_schema
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.avro_text import (
    CONNECT_TYPE,
    KEY,
    LOGICAL_MAP,
    SPARK_INTERVAL,
    SPARK_TYPE,
    VALUE,
)
from storage_engine.core.typed.bounded_json import check_text_size, json_integer

_PRIMITIVES: dict[str, types.ColumnType] = {
    "boolean": types.BooleanColumn(),
    "int": types.IntegerColumn(32),
    "long": types.IntegerColumn(64),
    "float": types.FloatColumn(32),
    "double": types.FloatColumn(64),
    "bytes": types.BinaryColumn(),
    "string": types.StringColumn(),
}

_LOGICAL: dict[avro.Logical, types.ColumnType] = {
    avro.Logical.DATE: types.DateColumn(),
    avro.Logical.TIMESTAMP_MILLIS: types.TimestampColumn(with_zone=True),
    avro.Logical.TIMESTAMP_MICROS: types.TimestampColumn(with_zone=True),
    avro.Logical.LOCAL_TIMESTAMP_MILLIS: types.TimestampColumn(with_zone=False),
    avro.Logical.LOCAL_TIMESTAMP_MICROS: types.TimestampColumn(with_zone=False),
}

_REFUSED = ("timestamp-nanos", "local-timestamp-nanos", "time-millis", "time-micros", "duration")


def parse_avro(text: str) -> list[types.ColumnSpec]:
    """Return the columns; ConfigError names what can't be one."""
    check_text_size(text, "the Avro schema")
    try:
        schema = parse_avro_schema(text)
    except InvalidSchemaError as error:
        raise ConfigError(str(error)) from None
    if not isinstance(schema.root, avro.Record):
        raise ConfigError("the Avro schema must be a record: its fields are the columns")
    fields = _ColumnReader(schema).record(schema.root, "", 0)
    return [types.ColumnSpec(field.name, field.type, field.nullable) for field in fields]


class _ColumnReader(types.TypeCount):
    """Walks the schema; each type is counted, also where a name stands for it."""

    def __init__(self, schema: avro.AvroSchema) -> None:
        super().__init__()
        self._schema = schema
        self._around: list[str] = []
        """The names of the records around the type that is being read."""

    def record(self, record: avro.Record, path: str, depth: int) -> list[types.StructColumnField]:
        self._around.append(record.full_name)
        found: list[types.StructColumnField] = []
        for field in record.fields:
            inner = f"{path}.{field.name}"[-200:] if path else field.name[:200]
            column_type, nullable = self._type(field.type, inner, depth + 1)
            found.append(types.StructColumnField(field.name, column_type, nullable))
        types.check_field_names(field.name for field in found)
        self._around.pop()
        return found

    def _type(
        self, avro_type: avro.AvroType, path: str, depth: int
    ) -> tuple[types.ColumnType, bool]:
        """Return the type, and whether it may be null."""
        if not isinstance(avro_type, avro.Union):
            return self._single(avro_type, path, depth), False
        branches = avro_type.branches
        others = [
            each
            for each in branches
            if not (isinstance(each, avro.Primitive) and each.name == "null")
        ]
        if len(others) != 1:
            raise ConfigError(
                f"'{path}' is a union of {len(others)} types beside null: name one type"
            )
        return self._single(others[0], path, depth), len(others) < len(branches)

    def _single(self, avro_type: avro.AvroType, path: str, depth: int) -> types.ColumnType:
        self.step(depth)
        match self._schema.resolve(avro_type):
            case avro.Record() as record:
                if record.full_name in self._around:
                    raise ConfigError(
                        f"'{path}' contains its own record '{record.full_name[:80]}': a column "
                        "can't be of that depth"
                    )
                return types.StructColumn(tuple(self.record(record, path, depth)))
            case avro.Array() as array if array.properties.get("logicalType") == LOGICAL_MAP:
                return self._map(array, path, depth)
            case avro.Array(items=items):
                return types.ArrayColumn(*self._type(items, path, depth + 1))
            case avro.Map(values=values):
                self.step(depth)
                return types.MapColumn(types.StringColumn(), *self._type(values, path, depth + 1))
            case avro.Enum():
                return types.StringColumn()
            case avro.Fixed() as fixed:
                return _plain_or_logical(types.BinaryColumn(), fixed.logical, fixed, path)
            case avro.Primitive() as primitive:
                if primitive.name == "null":
                    raise ConfigError(f"'{path}' is always null: name its type")
                plain = _PRIMITIVES[primitive.name]
                return _plain_or_logical(plain, primitive.logical, primitive, path)
            case avro.Union():
                raise AssertionError("a union has no union inside")

    def _map(self, array: avro.Array, path: str, depth: int) -> types.ColumnType:
        """Return the map that an array of entries is; an array of anything else is itself."""
        entry = self._schema.resolve(array.items)
        if isinstance(entry, avro.Record) and [each.name for each in entry.fields] == [KEY, VALUE]:
            key, value = entry.fields
            key_type, may_be_null = self._type(key.type, f"{path}.{KEY}", depth + 1)
            if not may_be_null:
                inner = self._type(value.type, f"{path}.{VALUE}", depth + 1)
                return types.MapColumn(key_type, *inner)
        return types.ArrayColumn(*self._type(array.items, path, depth + 1))


_BY_ATTRIBUTE: dict[tuple[str, str], types.ColumnType] = {
    (CONNECT_TYPE, "int8"): types.IntegerColumn(8),
    (CONNECT_TYPE, "int16"): types.IntegerColumn(16),
    (SPARK_TYPE, SPARK_INTERVAL): types.IntervalColumn(),
}
_CARRIERS = {CONNECT_TYPE: "int", SPARK_TYPE: "long"}
"""The types whose attributes count."""


def _plain_or_logical(
    plain: types.ColumnType,
    logical: avro.LogicalType | None,
    written: avro.Primitive | avro.Fixed,
    path: str,
) -> types.ColumnType:
    name = written.properties.get("logicalType")
    if name == "decimal" and isinstance(plain, types.BinaryColumn):
        # What Avro leaves out of account, since it does not fit, was meant to be a number.
        try:
            return types.DecimalColumn(
                json_integer(written.properties.get("precision"), f"the precision of '{path}'"),
                json_integer(written.properties.get("scale", 0), f"the scale of '{path}'"),
            )
        except ConfigError as error:
            raise ConfigError(f"'{path}': {error}") from error
    if isinstance(name, str) and name in _REFUSED:
        raise ConfigError(
            f"'{path}' has the logical type {printable(name)}, which no column can keep: use "
            "timestamp-micros, long, int or bytes"
        )
    if isinstance(logical, avro.Logical):
        return _LOGICAL.get(logical, plain)
    return _by_attribute(written) or plain


def _by_attribute(written: avro.Primitive | avro.Fixed) -> types.ColumnType | None:
    for attribute, carrier in _CARRIERS.items():
        value = written.properties.get(attribute)
        if written.name == carrier and isinstance(value, str):
            return _BY_ATTRIBUTE.get((attribute, value))
    return None
