"""The Arrow type of each type of a column: exactly one, so that stored columns need no schema.

Everything nested is nullable, since rows of other versions and tombstones have nulls anywhere.

    column          Arrow                   column          Arrow
    BOOLEAN         bool                    BINARY          binary
    TINYINT         int8                    DATE            date32
    SMALLINT        int16                   TIMESTAMP       timestamp[us, UTC]
    INT             int32                   TIMESTAMP_NTZ   timestamp[us]
    BIGINT          int64                   INTERVAL        duration[us]
    FLOAT           float                   ARRAY           list<element>
    DOUBLE          double                  MAP             map<key, value>
    DECIMAL(p,s)    decimal128(p, s)        STRUCT          struct
    STRING          string
"""

from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa

from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.topic_schema import SchemaColumn
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.typed.directory import HEADERS, OFFSETS, TIMESTAMPS, TOMBSTONES

SYSTEM_TYPES = {
    OFFSETS: pa.int32(),
    TIMESTAMPS: pa.int64(),
    HEADERS: HEADERS_TYPE,
    TOMBSTONES: pa.bool_(),
}

_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_FLOATS = {32: pa.float32(), 64: pa.float64()}
_SINGLE: dict[types.ColumnType, pa.DataType] = {
    types.BooleanColumn(): pa.bool_(),
    types.StringColumn(): pa.string(),
    types.BinaryColumn(): pa.binary(),
    types.DateColumn(): pa.date32(),
    types.TimestampColumn(with_zone=True): pa.timestamp("us", tz="UTC"),
    types.TimestampColumn(with_zone=False): pa.timestamp("us"),
    types.IntervalColumn(): pa.duration("us"),
}


@lru_cache(maxsize=4096)
def arrow_type(column_type: types.ColumnType) -> pa.DataType:
    match column_type:
        case types.IntegerColumn(bits):
            return _INTEGERS[bits]
        case types.FloatColumn(bits):
            return _FLOATS[bits]
        case types.DecimalColumn(precision, scale):
            return pa.decimal128(precision, scale)
        case types.ArrayColumn(element, _):
            return pa.list_(pa.field("element", arrow_type(element)))
        case types.MapColumn(key, value, _):
            return pa.map_(arrow_type(key), arrow_type(value))
        case types.StructColumn(fields):
            return pa.struct([pa.field(each.name, arrow_type(each.type)) for each in fields])
        case _:
            return _SINGLE[column_type]


def arrow_schema(columns: Iterable[SchemaColumn]) -> pa.Schema:
    """Return a pa.Schema with a nullable field for each column, in their order."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def same_layout(one: pa.DataType, other: pa.DataType) -> bool:
    """Return True when arrays of both types have the same buffers: types that are equal but for
    nullability, and for the names of a list's or a map's parts."""
    if one == other:
        return True
    if one.id != other.id or one.num_fields != other.num_fields or not one.num_fields:
        return False
    names_count = pa.types.is_struct(one)
    return all(
        (not names_count or a.name == b.name) and same_layout(a.type, b.type)
        for a, b in zip(_fields(one), _fields(other), strict=True)
    )


def _fields(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(index) for index in range(kind.num_fields)]
