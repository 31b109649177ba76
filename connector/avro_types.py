"""The types of columns of Avro's types, as Spark's `from_avro` and `to_avro` have them. Pure."""

from dataclasses import dataclass

from storage_engine.core.schemas.avro.schema import (
    Array,
    AvroSchema,
    AvroType,
    Logical,
    Map,
    Primitive,
    Record,
    Union,
)
from storage_engine.core.typed import column_types as types

SINGLE = "value"
"""The column of a schema that is no record."""

_NANOS = {Logical.TIMESTAMP_NANOS: True, Logical.LOCAL_TIMESTAMP_NANOS: False}
"""Whether these have a time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroColumn:
    """A field of a record, or all of a schema that is no record."""

    name: str
    type: types.ColumnType
    nullable: bool


def is_record(schema: AvroSchema) -> bool:
    return isinstance(schema.resolve(schema.root), Record)


def avro_columns(
    schema: AvroSchema, given: types.StructColumn | None = None
) -> tuple[AvroColumn, ...]:
    """The columns of a schema. `given`: the columns that are to be written, which may be times
    where a schema has nanoseconds. InvalidSchemaError for a schema that can't have columns."""
    from storage_engine.protocol.avro.arrow_types import check_columns

    check_columns(schema)
    root = schema.resolve(schema.root)
    named = {} if given is None else {each.name.lower(): each.type for each in given.fields}
    if not isinstance(root, Record):
        kind = column_type(schema, root, named.get(SINGLE))
        return (AvroColumn(name=SINGLE, type=kind, nullable=is_nullable(schema, root)),)
    return tuple(
        AvroColumn(
            name=each.name,
            type=column_type(schema, each.type, named.get(each.name.lower())),
            nullable=is_nullable(schema, each.type),
        )
        for each in root.fields
    )


def whole_type(schema: AvroSchema, given: types.ColumnType | None = None) -> types.ColumnType:
    """The type of one column for all of a schema; `given` as in `avro_columns`, for that column.
    InvalidSchemaError as there."""
    from storage_engine.protocol.avro.arrow_types import check_columns

    check_columns(schema)
    return column_type(schema, schema.root, given)


def is_nullable(schema: AvroSchema, avro_type: AvroType) -> bool:
    """Whether null is a value of the type."""
    found = schema.resolve(avro_type)
    if isinstance(found, Union):
        return any(is_nullable(schema, each) for each in found.branches)
    return isinstance(found, Primitive) and found.name == "null"


def column_type(
    schema: AvroSchema, avro_type: AvroType, given: types.ColumnType | None = None
) -> types.ColumnType:
    """The type of a column with the values of an Avro type. `given` is as in `avro_columns`."""
    found = schema.resolve(avro_type)
    match found:
        case Array():
            element = given.element if isinstance(given, types.ArrayColumn) else None
            return types.ArrayColumn(column_type(schema, found.items, element))
        case Map():
            value = given.value if isinstance(given, types.MapColumn) else None
            return types.MapColumn(types.StringColumn(), column_type(schema, found.values, value))
        case Record():
            fields = [(each.name, each.type) for each in found.fields]
            return _struct(schema, fields, given)
        case Union():
            return _union(schema, found, given)
        case Primitive() if found.logical in _NANOS and isinstance(given, types.TimestampColumn):
            return types.TimestampColumn(_NANOS[found.logical])
    return _leaf(schema, found)


def _struct(
    schema: AvroSchema, fields: list[tuple[str, AvroType]], given: types.ColumnType | None
) -> types.StructColumn:
    named = (
        {each.name.lower(): each.type for each in given.fields}
        if isinstance(given, types.StructColumn)
        else {}
    )
    return types.StructColumn(
        tuple(
            types.StructColumnField(
                name,
                column_type(schema, kind, named.get(name.lower())),
                is_nullable(schema, kind),
            )
            for name, kind in fields
        )
    )


def _union(schema: AvroSchema, found: Union, given: types.ColumnType | None) -> types.ColumnType:
    from storage_engine.protocol.avro.arrow_types import is_null, widened

    members = [each for each in found.branches if not is_null(schema, each)]
    if not members:
        return types.StringColumn()
    if len(members) == 1:
        return column_type(schema, members[0], given)
    if widened(schema, found) is not None:
        return _leaf(schema, found)
    return types.StructColumn(
        tuple(
            types.StructColumnField(each.name, each.type, True)
            for each in _struct(
                schema, [(f"member{place}", each) for place, each in enumerate(members)], given
            ).fields
        )
    )


def _leaf(schema: AvroSchema, found: AvroType) -> types.ColumnType:
    """The type of what holds no other values. Spark has no type for null alone: it is a text."""
    import pyarrow as pa

    from storage_engine.protocol.avro.arrow_types import arrow_type

    kind = arrow_type(schema, found)
    if pa.types.is_decimal(kind):
        return types.DecimalColumn(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return types.TimestampColumn(kind.tz is not None)
    if pa.types.is_integer(kind):
        return types.IntegerColumn(kind.bit_width)
    if pa.types.is_floating(kind):
        return types.FloatColumn(kind.bit_width)
    plain: dict[pa.DataType, types.ColumnType] = {
        pa.bool_(): types.BooleanColumn(),
        pa.binary(): types.BinaryColumn(),
        pa.date32(): types.DateColumn(),
    }
    return plain.get(kind, types.StringColumn())
