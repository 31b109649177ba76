"""Avro records of one writer's schema as the columns of a topic.

Fields become columns of their names. A field that the topic does not have is refused, as in JSON;
a column that the writer does not have is null. Types are those of `avro_text.py`, and what Avro
promotes to them; a union must be of null and one type. What else the columns of an Avro schema may
come from (`avro_schema.py`) is read, too: enums as strings, fixed as bytes, times in milliseconds.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from storage_engine.core.printable import printable
from storage_engine.core.schemas.avro import schema as avro
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.avro_text import KEY, VALUE, plain_type
from storage_engine.core.typed.topic_schema import SchemaColumn
from storage_engine.protocol.avro import promotions
from storage_engine.protocol.avro.arrow_types import is_null, type_name, widened
from storage_engine.protocol.avro.conversion import (
    Conversion,
    Converted,
    Misfits,
    list_of,
    map_of,
    struct_of,
    unchanged,
)
from storage_engine.protocol.avro.damage import Damage
from storage_engine.protocol.avro.decode import Decoder, UndecodableRecordError
from storage_engine.protocol.avro.record_bytes import Bodies
from storage_engine.protocol.avro.value_room import ValueRoom
from storage_engine.protocol.records.arrow_kernels import as_type, kernel
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.nested_arrays import bits, one_value


class AvroParser:
    """Reads records of one schema. It keeps nothing of them."""

    def __init__(
        self, writer: avro.AvroSchema, columns: Sequence[SchemaColumn], key: Collection[int] = ()
    ) -> None:
        """InvalidSchemaError where no record of the writer can be a row of these columns. Those of
        the `key`, by their ids, may be missing."""
        self._decoder = Decoder(writer)
        root = writer.resolve(writer.root)
        if not isinstance(root, avro.Record):
            raise InvalidSchemaError("its schema is no record, whose fields would be the columns")
        fields = tuple(
            types.StructColumnField(each.name, each.type, each.nullable or each.column_id in key)
            for each in columns
        )
        rules = _Rules(writer)
        self._sources = rules.fields(root, fields, "")
        self._names = [each.name for each in columns]
        self._kinds = [arrow_type(each.type) for each in columns]
        self._growth = rules.growth
        self.cells = max(self._decoder.values, types.least_values(types.StructColumn(fields)))
        """The values of one row, with each of its lists and maps as one."""

    def columns(self, bodies: Bodies, room: ValueRoom) -> list[pa.Array]:
        """Return an array for each column; UndecodableRecordError for the first record that is
        none, or does not fit, RecordTooLargeError where lists have more values than there is room.
        """
        lists = ValueRoom(room.left // self._growth)
        fault: Damage | None = None
        try:
            found = self._decoder.decode_all(bodies, lists)
        except UndecodableRecordError as error:
            # Records before it may be whole, and not fit.
            fault = error.damage
            if not fault.row:
                raise
            found = self._decoder.decode_all(bodies.first(fault.row), lists)
        room.left = lists.left * self._growth
        arrays = []
        for name, kind, source in zip(self._names, self._kinds, self._sources, strict=True):
            if source is None:
                arrays.append(pa.nulls(len(bodies), kind))
                continue
            place, conversion = source
            array, misfits = conversion(found[place])
            arrays.append(array)
            for rows, reason in misfits:
                row = int(np.argmax(rows))
                if rows[row] and (fault is None or row < fault.row):
                    fault = Damage(row, f"'{printable(name)}' {reason}")
        if fault is not None:
            raise UndecodableRecordError(fault)
        return arrays


class _Rules:
    """Compares a writer's types with those of columns."""

    def __init__(self, writer: avro.AvroSchema) -> None:
        self._writer = writer
        self.growth = 1
        """The most values of a nested struct, missing ones included, for one that is written."""

    def fields(
        self, record: avro.Record, fields: Sequence[types.StructColumnField], path: str
    ) -> list[tuple[int, Conversion] | None]:
        """Return the place of the writer's field for each of these, with a conversion; None where
        it has none. InvalidSchemaError where the writer has another field, or has none that must
        not be null."""
        places = {each.name: place for place, each in enumerate(record.fields)}
        known = {each.name for each in fields}
        for name in places:
            if name not in known:
                raise _unfit(path + name, "is not in the topic's schema: drop or add it")
        found: list[tuple[int, Conversion] | None] = []
        for each in fields:
            place = places.get(each.name)
            inner = path + each.name
            if place is not None:
                kind = record.fields[place].type
                found.append((place, self._conversion(kind, each.type, inner)))
            elif each.nullable:
                found.append(None)
            else:
                raise _unfit(inner, "is NOT NULL, and the record has no such field")
        return found

    def _conversion(
        self, written: avro.AvroType, column_type: types.ColumnType, path: str
    ) -> Conversion:
        source = self._writer.resolve(written)
        match source, column_type:
            case avro.Union(), _:
                return self._union(source, column_type, path)
            case avro.Primitive(name="null"), _:
                kind = arrow_type(column_type)
                return lambda array: (pa.nulls(len(array), kind), [])
            case avro.Array(), types.ArrayColumn():
                item = self._conversion(source.items, column_type.element, f"{path}[]")
                return item if item is unchanged else list_of(arrow_type(column_type), item)
            case avro.Map(), types.MapColumn(key=types.StringColumn()):
                value = self._conversion(source.values, column_type.value, f"{path}[]")
                return value if value is unchanged else map_of(arrow_type(column_type), value)
            case avro.Array(), types.MapColumn() if column_type.key != types.StringColumn():
                return self._entries(source, column_type, path)
            case avro.Record(), types.StructColumn():
                return self._struct(source, column_type, path)
            case ((avro.Primitive() | avro.Fixed() | avro.Enum()), _):
                return self._plain(source, column_type, path)
        raise _other_type(source, column_type, path)

    def _union(self, union: avro.Union, column_type: types.ColumnType, path: str) -> Conversion:
        others = [each for each in union.branches if not is_null(self._writer, each)]
        if not others:
            return self._conversion(avro.Primitive("null"), column_type, path)
        if len(others) == 1:
            return self._conversion(others[0], column_type, path)
        wide = widened(self._writer, union)
        if wide is None:
            raise _unfit(
                path, f"is a union of {len(others)} types beside null, and a column has one type"
            )
        number = avro.Primitive("long" if pa.types.is_integer(wide) else "double")
        return self._conversion(number, column_type, path)

    def _struct(
        self, record: avro.Record, column_type: types.StructColumn, path: str
    ) -> Conversion:
        sources = self.fields(record, column_type.fields, f"{path}.")
        have = max(1, len(record.fields))
        missing = sum(
            types.least_values(each.type)
            for each, source in zip(column_type.fields, sources, strict=True)
            if source is None
        )
        self.growth = max(self.growth, -(-(have + missing) // have))
        same = [(place, unchanged) for place in range(len(record.fields))]
        if sources == same and len(same) == len(column_type.fields):
            return unchanged
        kind = arrow_type(column_type)
        parts = [
            pa.nulls(1, kind.field(place).type) if source is None else source
            for place, source in enumerate(sources)
        ]
        return struct_of(kind, parts)

    def _entries(self, array: avro.Array, column_type: types.MapColumn, path: str) -> Conversion:
        """Return the conversion of an array of entries to a map."""
        entry = self._writer.resolve(array.items)
        fields = (
            types.StructColumnField(KEY, column_type.key, nullable=False),
            types.StructColumnField(VALUE, column_type.value, column_type.value_nullable),
        )
        if not isinstance(entry, avro.Record):
            raise _unfit(path, f"must be an array of records of '{KEY}' and '{VALUE}'")
        for each in entry.fields:
            if each.name == KEY and _may_be_null(self._writer, each.type):
                raise _unfit(f"{path}.{KEY}", "may be null, and keys of a MAP may not")
        # A map has its entries in another type than a list has its structs in.
        kind = arrow_type(column_type)
        entries = types.StructColumn(fields)
        found = self._struct(entry, entries, path)
        if found is unchanged:
            places = {each.name: place for place, each in enumerate(entry.fields)}
            found = struct_of(arrow_type(entries), [(places[n], unchanged) for n in (KEY, VALUE)])
        return list_of(kind, found)

    def _plain(
        self,
        written: avro.Primitive | avro.Fixed | avro.Enum,
        column_type: types.ColumnType,
        path: str,
    ) -> Conversion:
        read = plain_type(column_type)
        found: Conversion | str | None = None
        match written, read:
            case _, None:
                pass
            case avro.Enum(), avro.Primitive(name="string"):
                found = unchanged
            case avro.Fixed(), avro.Primitive(name="bytes"):
                decimal = isinstance(written.logical, avro.Decimal)
                if decimal or read.logical is not None:
                    found = promotions.decimals(written.logical, read.logical)
                else:
                    found = unchanged
            case avro.Primitive(), _ if promotions.is_promoted(written, read):
                found = promotions.promotion(written, read)
        if found is None:
            raise _other_type(written, column_type, path)
        if isinstance(found, str):
            raise _unfit(path, found)
        match column_type:
            case types.IntegerColumn(8 | 16):
                return _narrowed(arrow_type(column_type), found)
            case types.IntervalColumn():
                return _as_interval(found)
        return found


def _narrowed(kind: pa.DataType, conversion: Conversion) -> Conversion:
    """Return the conversion to smaller integers, which some numbers are not."""
    limits = np.iinfo(f"i{kind.byte_width}")
    least, most = (_int32(limit) for limit in (limits.min, limits.max))

    def convert(array: pa.Array) -> Converted:
        numbers, misfits = conversion(array)
        try:
            return as_type(numbers, kind), misfits
        except pa.ArrowInvalid:
            below, above = kernel("less", numbers, least), kernel("greater", numbers, most)
            wrong = kernel("coalesce", kernel("or", below, above), _FALSE)
            reason = f"has a number of more than {8 * kind.byte_width} bits"
            return pa.nulls(len(numbers), kind), [*misfits, Misfits(bits(wrong), reason)]

    return convert


def _as_interval(conversion: Conversion) -> Conversion:
    def convert(array: pa.Array) -> Converted:
        numbers, misfits = conversion(array)
        return numbers.view(_INTERVAL), misfits

    return convert


def _int32(number: int) -> pa.Scalar:
    return one_value(pa.int32(), number.to_bytes(4, "little", signed=True))


_FALSE = one_value(pa.bool_(), b"\0")
_INTERVAL = arrow_type(types.IntervalColumn())


def _may_be_null(schema: avro.AvroSchema, avro_type: avro.AvroType) -> bool:
    found = schema.resolve(avro_type)
    branches = found.branches if isinstance(found, avro.Union) else (found,)
    return any(is_null(schema, each) for each in branches)


def _unfit(path: str, why: str) -> InvalidSchemaError:
    return InvalidSchemaError(f"'{printable(path[-200:])}' {why}")


def _other_type(
    written: avro.AvroType, column_type: types.ColumnType, path: str
) -> InvalidSchemaError:
    shown = types.ddl_of(column_type)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return _unfit(path, f"is {type_name(written)}, and the column is {printable(shown)}")
