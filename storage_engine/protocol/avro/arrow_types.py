"""The Arrow types of Avro types, as Spark's from_avro has them.

    Avro                                 Arrow
    null, boolean, int, long             null, bool, int32, int64
    float, double, string, bytes         float, double, string, binary
    fixed, duration                      binary
    enum, uuid of a string               string
    decimal, of bytes or fixed           decimal128(precision, scale); at most 38 digits
    date                                 date32
    timestamp-millis, -micros            timestamp[us, UTC]
    local-timestamp-millis, -micros      timestamp[us]
    time-millis; time-micros             int32; int64: the number itself
    timestamp-nanos, local- too          int64, the number itself: Spark's times have microseconds
    array, map, record                   list<element>, map<string, value>, struct
    union of null and T; of T            T
    of int and long; float and double    int64; double (with null or without)
    another union                        struct<member0, member1, ...> of its types but null

All is nullable, since a record that is damaged is null.
"""

import pyarrow as pa

from storage_engine.core.printable import printable
from storage_engine.core.schemas.avro.schema import (
    Array,
    AvroSchema,
    AvroType,
    Decimal,
    Enum,
    Fixed,
    Logical,
    LogicalType,
    Map,
    NamedType,
    Primitive,
    Record,
    Union,
    recursive_names,
)
from storage_engine.core.schemas.errors import InvalidSchemaError

VALUE = "value"
"""The name of the one column of a schema whose outermost type is no record."""
MAX_VALUES = 10_000
"""The most columns of a schema at any depth: a name may stand for a wide record many times."""
MAX_FIXED_BYTES = 0x7FFF_FFFF
_MAX_DIGITS = 38

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
UTC_TIME = pa.timestamp("us", tz="UTC")
LOCAL_TIME = pa.timestamp("us")
_LOGICAL: dict[LogicalType | None, pa.DataType] = {
    Logical.DATE: pa.date32(),
    Logical.TIMESTAMP_MILLIS: UTC_TIME,
    Logical.TIMESTAMP_MICROS: UTC_TIME,
    Logical.LOCAL_TIMESTAMP_MILLIS: LOCAL_TIME,
    Logical.LOCAL_TIMESTAMP_MICROS: LOCAL_TIME,
}


def check_columns(schema: AvroSchema) -> None:
    """InvalidSchemaError for a schema of which no columns can be made: one that is recursive, with
    too many columns, or with decimals of more than 38 digits."""
    endless = recursive_names(schema)
    if endless:
        name = printable(min(endless)[:80])
        raise InvalidSchemaError(f"'{name}' contains itself: no column can have such a depth")
    _Count(schema).add(schema.root)


class _Count:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._left = MAX_VALUES

    def add(self, avro_type: AvroType) -> None:
        self._left -= 1
        if self._left < 0:
            raise InvalidSchemaError(f"the schema has more than {MAX_VALUES} columns, at any depth")
        found = self._schema.resolve(avro_type)
        match found:
            case Record():
                for each in found.fields:
                    self.add(each.type)
            case Array():
                self.add(found.items)
            case Map():
                self.add(found.values)
            case Union():
                for branch in found.branches:
                    self.add(branch)
            case Primitive() | Fixed():
                _check_logical(found)
            case Enum():
                pass


def _check_logical(found: Primitive | Fixed) -> None:
    if isinstance(found.logical, Decimal) and found.logical.precision > _MAX_DIGITS:
        raise InvalidSchemaError(
            f"a decimal of {found.logical.precision} digits: columns have at most {_MAX_DIGITS}"
        )
    if isinstance(found, Fixed) and found.size > MAX_FIXED_BYTES:
        raise InvalidSchemaError(f"'{printable(found.full_name[:80])}' has {found.size} bytes")


def is_null(schema: AvroSchema, avro_type: AvroType) -> bool:
    found = schema.resolve(avro_type)
    return isinstance(found, Primitive) and found.name == "null"


def type_name(found: AvroType) -> str:
    """Return what a message calls a type."""
    if isinstance(found, NamedType):
        return f"{type(found).__name__.lower()} {printable(found.full_name[:80])}"
    return found.name if isinstance(found, Primitive) else type(found).__name__.lower()


def widened(schema: AvroSchema, union: Union) -> pa.DataType | None:
    """Return the type of a union of numbers that is a number; None for another union."""
    others = [schema.resolve(each) for each in union.branches if not is_null(schema, each)]
    plain = [each for each in others if isinstance(each, Primitive) and each.logical is None]
    names = {each.name for each in plain}
    if len(others) == 2 and names == {"int", "long"}:
        return pa.int64()
    if len(others) == 2 and names == {"float", "double"}:
        return pa.float64()
    return None


def plain_type(found: Primitive | Fixed) -> pa.DataType:
    """Return the type of the arrays of a type without parts."""
    if isinstance(found.logical, Decimal):
        return pa.decimal128(found.logical.precision, found.logical.scale)
    if isinstance(found, Fixed):
        return pa.binary()
    return _LOGICAL.get(found.logical, _PRIMITIVES[found.name])


def arrow_type(schema: AvroSchema, avro_type: AvroType) -> pa.DataType:
    """Return the type of the arrays of an Avro type. The schema has passed `check_columns`."""
    found = schema.resolve(avro_type)
    match found:
        case Primitive() | Fixed():
            return plain_type(found)
        case Enum():
            return pa.string()
        case Array():
            return pa.list_(pa.field("element", arrow_type(schema, found.items)))
        case Map():
            return pa.map_(pa.string(), arrow_type(schema, found.values))
        case Record():
            return pa.struct(
                [pa.field(each.name, arrow_type(schema, each.type)) for each in found.fields]
            )
        case Union():
            return _union_type(schema, found)


def _union_type(schema: AvroSchema, union: Union) -> pa.DataType:
    others = [each for each in union.branches if not is_null(schema, each)]
    if not others:
        return pa.null()
    if len(others) == 1:
        return arrow_type(schema, others[0])
    return widened(schema, union) or pa.struct(
        [
            pa.field(f"member{number}", arrow_type(schema, each))
            for number, each in enumerate(others)
        ]
    )


def arrow_schema(schema: AvroSchema) -> pa.Schema:
    """Return the columns of a schema: the fields of its record, or one that is named `value`.
    InvalidSchemaError as `check_columns` has it."""
    check_columns(schema)
    root = schema.resolve(schema.root)
    if isinstance(root, Record):
        return pa.schema([(each.name, arrow_type(schema, each.type)) for each in root.fields])
    return pa.schema([(VALUE, arrow_type(schema, root))])
