"""The readers of a schema."""

from collections.abc import Collection

import pyarrow as pa

from storage_engine.core.schemas.avro.schema import (
    Array,
    AvroSchema,
    AvroType,
    Decimal,
    Enum,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    Union,
)
from storage_engine.protocol.avro.arrow_types import arrow_type, is_null, widened
from storage_engine.protocol.avro.decimal_reader import DecimalReader
from storage_engine.protocol.avro.list_reader import ListReader
from storage_engine.protocol.avro.plain_readers import (
    BooleanReader,
    EnumReader,
    FixedReader,
    FloatReader,
    IntegerReader,
    NullReader,
    TextReader,
)
from storage_engine.protocol.avro.record_reader import (
    NullableReader,
    RecordReader,
    UnionReader,
    WidenedReader,
)
from storage_engine.protocol.avro.value_reader import ValueReader

_MILLIS = (Logical.TIMESTAMP_MILLIS, Logical.LOCAL_TIMESTAMP_MILLIS)


def record_reader(
    schema: AvroSchema, record: Record, wanted: Collection[str] | None = None
) -> RecordReader:
    """Return the reader of a record; `wanted` are the names of the fields that it reads."""
    chosen = {
        number for number, each in enumerate(record.fields) if wanted is None or each.name in wanted
    }
    kinds = [
        pa.field(each.name, arrow_type(schema, each.type))
        for number, each in enumerate(record.fields)
        if number in chosen
    ]
    readers = [reader_of(schema, each.type) for each in record.fields]
    return RecordReader(pa.struct(kinds), readers, frozenset(chosen))


def reader_of(schema: AvroSchema, avro_type: AvroType) -> ValueReader:
    """Return the reader of a type of a schema that has passed `check_columns`."""
    found = schema.resolve(avro_type)
    kind = arrow_type(schema, found)
    match found:
        case Primitive():
            return _plain_reader(found, kind)
        case Fixed():
            is_decimal = isinstance(found.logical, Decimal)
            return DecimalReader(kind, found.size) if is_decimal else FixedReader(found.size)
        case Enum():
            return EnumReader(found.symbols)
        case Array():
            return ListReader(kind, reader_of(schema, found.items))
        case Map():
            value = reader_of(schema, found.values)
            entry_kind = pa.struct([kind.key_field, kind.item_field])
            entry = RecordReader(entry_kind, [TextReader(pa.string()), value])
            return ListReader(kind, entry)
        case Record():
            return record_reader(schema, found)
        case Union():
            return _union_reader(schema, found, kind)


def _plain_reader(found: Primitive, kind: pa.DataType) -> ValueReader:
    match found.name:
        case "null":
            return NullReader()
        case "boolean":
            return BooleanReader()
        case "int" | "long":
            return IntegerReader(kind, factor=1000 if found.logical in _MILLIS else 1)
        case "float" | "double":
            return FloatReader(kind)
        case "bytes" if isinstance(found.logical, Decimal):
            return DecimalReader(kind, None)
        case _:
            return TextReader(kind)


def _union_reader(schema: AvroSchema, union: Union, kind: pa.DataType) -> ValueReader:
    branches = [
        None if is_null(schema, each) else reader_of(schema, each) for each in union.branches
    ]
    null_branch = branches.index(None) if None in branches else None
    members = [each for each in branches if each is not None]
    if not members:
        return NullableReader(NullReader(), null_branch=None)
    if len(members) == 1:
        return NullableReader(members[0], null_branch=null_branch)
    if widened(schema, union) is not None:
        return WidenedReader(kind, branches)
    return UnionReader(kind, branches)
