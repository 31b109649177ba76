"""The Avro schema of columns, as Spark's `to_avro` makes it, but for nulls: the type of what is
nullable is a union of null, first, and its type, and null is the default of such a field.

    column                        Avro
    BOOLEAN, STRING, BINARY       boolean, string, bytes
    TINYINT, SMALLINT             int, with connect.type int8 and int16, as Kafka Connect has it
    INT, BIGINT                   int, long
    FLOAT, DOUBLE                 float, double
    DECIMAL(p, s)                 decimal of bytes
    DATE                          date
    TIMESTAMP, TIMESTAMP_NTZ      timestamp-micros, local-timestamp-micros
    INTERVAL DAY TO SECOND        long of microseconds, with the name that Spark gives its type
    ARRAY, MAP<STRING, value>     array, map
    another MAP                   array of records `key` and `value`, with logicalType map, as
                                  Iceberg has it
    STRUCT                        record

A record is named after its column, within the name of the record around it. So each version of a
topic's schema is a compatible step for readers (BACKWARD) from the one before: only the names of
columns, which never change, make names. Hence decimals are bytes: the size of a fixed type would
grow with their digits.

`avro_schema.py` is the reverse: the columns come back as they were.
"""

import re
from typing import get_args

from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable
from storage_engine.core.schemas.avro import schema as avro
from storage_engine.core.schemas.avro.canonical import canonical_text
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.json_text import check_text_size
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.topic_schema import SchemaVersion, TopicSchema

CONNECT_TYPE = "connect.type"
"""The attribute by which Kafka Connect keeps the width of a small integer."""
SPARK_TYPE = "spark.sql.catalyst.type"
"""The attribute by which Spark keeps a type that Avro does not have."""
SPARK_INTERVAL = "interval day to second"
LOGICAL_MAP = "map"
"""The logical type of an array whose records are the entries of a map."""
KEY, VALUE = "key", "value"
"""The fields of an entry."""

_NULL = avro.Primitive("null")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIGN = re.compile(r"[^A-Za-z0-9_]")
_OWN_NAMES = frozenset(get_args(avro.PrimitiveName))


def _logical(name: avro.PrimitiveName, logical: avro.Logical) -> avro.Primitive:
    return avro.Primitive(name, logical, properties={"logicalType": logical.value})


_PLAIN: dict[types.ColumnType, avro.Primitive] = {
    types.BooleanColumn(): avro.Primitive("boolean"),
    types.IntegerColumn(8): avro.Primitive("int", properties={CONNECT_TYPE: "int8"}),
    types.IntegerColumn(16): avro.Primitive("int", properties={CONNECT_TYPE: "int16"}),
    types.IntegerColumn(32): avro.Primitive("int"),
    types.IntegerColumn(64): avro.Primitive("long"),
    types.FloatColumn(32): avro.Primitive("float"),
    types.FloatColumn(64): avro.Primitive("double"),
    types.StringColumn(): avro.Primitive("string"),
    types.BinaryColumn(): avro.Primitive("bytes"),
    types.IntervalColumn(): avro.Primitive("long", properties={SPARK_TYPE: SPARK_INTERVAL}),
    types.DateColumn(): _logical("int", avro.Logical.DATE),
    types.TimestampColumn(with_zone=True): _logical("long", avro.Logical.TIMESTAMP_MICROS),
    types.TimestampColumn(with_zone=False): _logical("long", avro.Logical.LOCAL_TIMESTAMP_MICROS),
}


def avro_text(schema: TopicSchema, version: SchemaVersion, name: str) -> str:
    """Return the canonical text of the visible columns of a version of the schema. `name` is the
    topic's. ConfigError for a column whose name Avro can't have, or a text above 1 MiB."""
    assert schema.version(version.version) == version
    text = canonical_text(version_schema(version, record_name(name)))
    try:
        check_text_size(text, "its Avro schema")
    except InvalidSchemaError as error:
        raise ConfigError(f"the topic can't be Avro: {error}; use shorter names") from None
    return text


def record_name(topic: str) -> str:
    """Return a full name of Avro for a topic: its dots part namespaces. A hyphen becomes `__`, and
    a part that is empty or begins with a digit gets a `_` in front, and a name of Avro's own one
    behind, so that two topics have one name only where theirs differ in nothing but these signs."""
    parts = [_SIGN.sub("__", part) for part in topic.split(".")]
    *outer, last = (part if _NAME.fullmatch(part) else f"_{part}" for part in parts)
    return ".".join([*outer, _own(last)])


def version_schema(version: SchemaVersion, full_name: str) -> avro.AvroSchema:
    """Return the schema of the visible columns; ConfigError as `avro_text` has it."""
    columns = tuple(
        types.StructColumnField(each.name, each.type, each.nullable) for each in version.visible
    )
    namespace, _, name = full_name.rpartition(".")
    return column_schema(types.StructColumn(columns), name, namespace)


def column_schema(
    column_type: types.ColumnType, name: str, namespace: str = "", *, as_spark: bool = False
) -> avro.AvroSchema:
    """Return the schema of values of a column that is called `name`. ConfigError for the name of a
    field that Avro can't have. `as_spark`: decimals are of the fixed type that Spark's `to_avro`
    gives them, and the width of small integers is not kept."""
    maker = _SchemaMaker(as_spark=as_spark)
    return avro.AvroSchema(maker.type(column_type, name, namespace), maker.names)


def plain_type(column_type: types.ColumnType) -> avro.Primitive | None:
    """Return the Avro type of a type without parts; None for a nested one."""
    if isinstance(column_type, types.DecimalColumn):
        digits = avro.Decimal(column_type.precision, column_type.scale)
        return avro.Primitive("bytes", digits, properties=_decimal_properties(column_type))
    return _PLAIN.get(column_type)


class _SchemaMaker:
    def __init__(self, *, as_spark: bool) -> None:
        self.names: dict[str, avro.NamedType] = {}
        self._as_spark = as_spark

    def type(self, column_type: types.ColumnType, name: str, namespace: str) -> avro.AvroType:
        match column_type:
            case types.IntegerColumn(8 | 16) if self._as_spark:
                return avro.Primitive("int")
            case types.DecimalColumn() if self._as_spark:
                return self._fixed(column_type, _full_name("fixed", _full_name(name, namespace)))
            case types.ArrayColumn(element, nullable):
                return avro.Array(self._part(element, nullable, name, namespace))
            case types.MapColumn(types.StringColumn(), value, nullable):
                return avro.Map(self._part(value, nullable, name, namespace))
            case types.MapColumn(key, value, nullable):
                entry = (
                    types.StructColumnField(KEY, key, nullable=False),
                    types.StructColumnField(VALUE, value, nullable),
                )
                record = self._record(entry, name, namespace)
                return avro.Array(record, properties={"logicalType": LOGICAL_MAP})
            case types.StructColumn(fields):
                return self._record(fields, name, namespace)
        found = plain_type(column_type)
        assert found is not None
        return found

    def _record(
        self, fields: tuple[types.StructColumnField, ...], name: str, namespace: str
    ) -> avro.Record:
        inner = _full_name(name, namespace)
        full = _full_name(_own(name), namespace)
        record = avro.Record(
            full_name=full, fields=tuple(self._field(each, inner) for each in fields)
        )
        self.names[full] = record
        return record

    def _field(self, field: types.StructColumnField, namespace: str) -> avro.Field:
        if not _NAME.fullmatch(field.name):
            raise ConfigError(
                f"the column '{printable(field.name)}' can't be a field of Avro, whose names are"
                " letters, digits and underscores: rename it"
            )
        found = self._part(field.type, field.nullable, field.name, namespace)
        default = None if field.nullable else avro.NO_DEFAULT
        return avro.Field(name=field.name, type=found, default=default)

    def _part(
        self, column_type: types.ColumnType, nullable: bool, name: str, namespace: str
    ) -> avro.AvroType:
        found = self.type(column_type, name, namespace)
        return avro.Union((_NULL, found)) if nullable else found

    def _fixed(self, column_type: types.DecimalColumn, full_name: str) -> avro.Fixed:
        largest: int = 10**column_type.precision - 1
        fixed = avro.Fixed(
            full_name=full_name,
            size=(largest.bit_length() + 8) // 8,
            logical=avro.Decimal(column_type.precision, column_type.scale),
            properties=_decimal_properties(column_type),
        )
        self.names[full_name] = fixed
        return fixed


def _own(name: str) -> str:
    """Return a name that is none of Avro's primitive types."""
    return f"{name}_" if name in _OWN_NAMES else name


def _full_name(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace else name


def _decimal_properties(column_type: types.DecimalColumn) -> avro.Properties:
    precision, scale = column_type.precision, column_type.scale
    return {"logicalType": "decimal", "precision": precision, "scale": scale}
