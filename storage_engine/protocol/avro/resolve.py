"""Records that were written with one schema become the columns of another, as Avro has it.

Source: the specification of Apache Avro 1.12, schema resolution.
"""

from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from storage_engine.core.printable import printable
from storage_engine.core.schemas.avro.schema import (
    Array,
    AvroSchema,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    NamedType,
    NoDefault,
    Primitive,
    Record,
    Union,
)
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.protocol.avro import promotions
from storage_engine.protocol.avro.arrays import taken, validity
from storage_engine.protocol.avro.arrow_types import (
    VALUE,
    arrow_schema,
    arrow_type,
    is_null,
    type_name,
    widened,
)
from storage_engine.protocol.avro.conversion import (
    Conversion,
    list_of,
    map_of,
    repeated,
    struct_of,
    unchanged,
)
from storage_engine.protocol.avro.damage import Damage
from storage_engine.protocol.avro.decode import Decoded, Decoder
from storage_engine.protocol.avro.defaults import default_array
from storage_engine.protocol.avro.union_conversion import Branch, UnionConversion


class Resolver:
    """Decodes records of the writer's schema to the columns of the reader's."""

    def __init__(
        self, writer: AvroSchema, reader: AvroSchema, columns: Collection[str] | None = None
    ) -> None:
        """`columns`: the names of the reader's that are wanted; None: all. InvalidSchemaError where
        the reader can't read what is written, whatever it is. A value that it can't read, such as a
        symbol that its enum does not have, is told with its record."""
        wanted = [each for each in arrow_schema(reader) if columns is None or each.name in columns]
        self.arrow_schema = pa.schema(wanted)
        """The columns that are decoded, in the order of the reader's schema."""
        arrow_schema(writer)
        sources = _Rules(writer, reader).columns()
        self._sources = [sources[each.name] for each in wanted]
        needed = {each[0] for each in self._sources if isinstance(each, tuple)}
        self._decoder = Decoder(writer, needed)

    def decode(self, bodies: pa.BinaryArray) -> Decoded:
        """Return the columns of these records, as `Decoder.decode` does."""
        batch, damaged = self._decoder.decode(bodies)
        good = validity(bodies)
        good = np.ones(len(bodies), np.bool_) if good is None else good
        good[[each.row for each in damaged]] = False
        arrays: list[pa.Array] = []
        refused: list[Damage] = []
        for column, source in zip(self.arrow_schema, self._sources, strict=True):
            if isinstance(source, pa.Array):
                arrays.append(repeated(source, len(bodies)))
                continue
            name, conversion = source
            array, misfits = conversion(batch.column(name))
            arrays.append(array)
            for rows, reason in misfits:
                found = np.flatnonzero(rows & good).tolist()
                what = f"'{printable(column.name)}' {reason}"
                refused.extend(Damage(row, what) for row in found)
                good[found] = False
        if not good.all():
            every = np.arange(len(bodies))
            arrays = [taken(each, every, good) for each in arrays]
        if not arrays:
            return Decoded(batch, damaged)
        resolved = pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)
        return Decoded(resolved, tuple(sorted((*damaged, *refused))))


Source: TypeAlias = "tuple[str, Conversion] | pa.Array"
"""The writer's column with a conversion, or one value that all rows have."""


class _Rules:
    """Compares the types of a writer and a reader."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer = writer
        self._reader = reader

    def columns(self) -> dict[str, Source]:
        """Return where each of the reader's columns comes from."""
        written = self._writer.resolve(self._writer.root)
        read = self._reader.resolve(self._reader.root)
        if not isinstance(written, Record) and not isinstance(read, Record):
            return {VALUE: (VALUE, self._conversion(written, read, ""))}
        if not isinstance(written, Record) or not isinstance(read, Record):
            raise InvalidSchemaError("one of the schemas is a record, and the other is not")
        found: dict[str, Source] = {}
        for field in read.fields:
            number = _place_of(field, written.fields)
            if number is None:
                found[field.name] = self._default(field, field.name)
            else:
                source = written.fields[number]
                found[field.name] = (
                    source.name,
                    self._conversion(source.type, field.type, field.name),
                )
        return found

    def _default(self, field: Field, path: str) -> pa.Array:
        if isinstance(field.default, NoDefault):
            raise _unreadable(path, "is not in the writer's schema, and has no default")
        return default_array(self._reader, field)

    def _conversion(self, writer: AvroType, reader: AvroType, path: str) -> Conversion:
        written, read = self._writer.resolve(writer), self._reader.resolve(reader)
        if isinstance(written, Union) or isinstance(read, Union):
            return self._of_unions(written, read, path)
        kind = arrow_type(self._reader, read)
        found: Conversion | str
        match written, read:
            case Primitive(), Primitive() if promotions.is_promoted(written, read):
                found = promotions.promotion(written, read)
            case Fixed(), Fixed():
                found = promotions.fixed(written, read)
            case Enum(), Enum():
                found = promotions.symbols(written, read)
            case Array(), Array():
                found = self._conversion(written.items, read.items, f"{path}[]")
                found = found if found is unchanged else list_of(kind, found)
            case Map(), Map():
                found = self._conversion(written.values, read.values, f"{path}[]")
                found = found if found is unchanged else map_of(kind, found)
            case Record(), Record():
                found = self._of_records(written, read, path)
            case _:
                found = f"is {type_name(written)}, and the reader's is {type_name(read)}"
        if isinstance(found, str):
            raise _unreadable(path, found)
        if isinstance(read, Enum | Fixed) and not _same_name(written, read):
            raise _unreadable(
                path, f"is {type_name(written)}, and the reader's is {type_name(read)}"
            )
        return found

    def _of_records(self, written: Record, read: Record, path: str) -> Conversion:
        fields: list[tuple[int, Conversion] | pa.Array] = []
        for field in read.fields:
            inner = f"{path}.{field.name}"
            number = _place_of(field, written.fields)
            if number is None:
                fields.append(self._default(field, inner))
            else:
                source = written.fields[number]
                fields.append((number, self._conversion(source.type, field.type, inner)))
        same = [(number, unchanged) for number in range(len(written.fields))]
        if fields == same and [f.name for f in written.fields] == [f.name for f in read.fields]:
            return unchanged
        return struct_of(arrow_type(self._reader, read), fields)

    def _of_unions(self, written: AvroType, read: AvroType, path: str) -> Conversion:
        sources = self._branches(self._writer, written)
        targets = self._branches(self._reader, read)
        members = [each for each in targets if not is_null(self._reader, each)]
        branches: list[Branch] = []
        reasons: list[str] = []
        for source in sources:
            if is_null(self._writer, source):
                continue
            branch, reason = self._branch(source, members, path)
            branches.append(branch)
            reasons += [] if reason is None else [reason]
        null_fits = len(members) < len(targets)
        may_be_null = any(is_null(self._writer, each) for each in sources)
        if all(each.target is None for each in branches) and not (null_fits and may_be_null):
            raise _unreadable(path, reasons[0] if reasons else "is null, which the reader's is not")
        same = [each.target for each in branches] == list(range(len(members)))
        if (
            same
            and (null_fits or not may_be_null)
            and all(each.conversion is unchanged for each in branches)
            and arrow_type(self._writer, written) == arrow_type(self._reader, read)
        ):
            return unchanged
        kinds = [arrow_type(self._reader, each) for each in members]
        return UnionConversion(arrow_type(self._reader, read), branches, kinds, null_fits=null_fits)

    def _branches(self, schema: AvroSchema, found: AvroType) -> Sequence[AvroType]:
        """Return the branches of a union; a type that is none is the only branch. Two that are
        read as one number are one."""
        if not isinstance(found, Union):
            return (found,)
        wide = widened(schema, found) if schema is self._writer else None
        if wide is None:
            return found.branches
        number = Primitive("long" if wide == pa.int64() else "double")
        nulls = [each for each in found.branches if is_null(schema, each)]
        return (number, *nulls)

    def _branch(
        self, source: AvroType, members: Sequence[AvroType], path: str
    ) -> tuple[Branch, str | None]:
        """Return what becomes of a branch, and why it is nothing. The type that it is itself comes
        before those that it can be promoted to, as in Java's library."""
        written = self._writer.resolve(source)
        name = type_name(written)
        in_turn = sorted(enumerate(members), key=lambda one: self._distance(written, one[1]))
        for number, member in in_turn:
            if self._matches(written, member):
                try:
                    conversion = self._conversion(written, member, path)
                except InvalidSchemaError as error:
                    return Branch(None, unchanged, name), str(error)
                return Branch(number, conversion, name), None
        return Branch(None, unchanged, name), f"is {name}, which the reader's type is not"

    def _distance(self, written: AvroType, member: AvroType) -> int:
        """Return how far a branch of the reader's union is from the type, of those that match."""
        read = self._reader.resolve(member)
        if read == written:
            return 0
        match written, read:
            case Primitive(), Primitive() if written.name == read.name:
                return 1
            case _:
                return 2

    def _matches(self, writer: AvroType, reader: AvroType) -> bool:
        """Whether Avro takes a branch of the reader's union for the type."""
        written, read = self._writer.resolve(writer), self._reader.resolve(reader)
        match written, read:
            case Primitive(), Primitive():
                return promotions.is_promoted(written, read)
            case Array(), Array():
                return self._matches(written.items, read.items)
            case Map(), Map():
                return self._matches(written.values, read.values)
            case (Fixed(), Fixed()) | (Enum(), Enum()) | (Record(), Record()):
                return _same_name(written, read)
            case _:
                return isinstance(written, Union) or isinstance(read, Union)


def _place_of(field: Field, written: Sequence[Field]) -> int | None:
    """Return the place of the writer's field for a reader's: by its name, else by an alias."""
    names = [each.name for each in written]
    return next((names.index(each) for each in (field.name, *field.aliases) if each in names), None)


def _same_name(written: AvroType, read: AvroType) -> bool:
    assert isinstance(written, NamedType)
    assert isinstance(read, NamedType)
    return written.name == read.name or written.full_name in read.aliases


def _unreadable(path: str, why: str) -> InvalidSchemaError:
    if why.startswith("'"):
        return InvalidSchemaError(why)
    what = f"'{printable(path[-200:])}'" if path else "the schema"
    return InvalidSchemaError(f"{what} {why}")
