"""Encodes rows of Arrow columns as Avro records, for all rows at once.

Each value of the schema's tree becomes parts of its rows (`encoding/byte_rows.py`): numbers by
numpy, texts and bytes as they are. Values that only some rows have (of nullable fields and other
unions) are encoded without the others and spread over the rows; elements of lists and entries of
maps are rows by themselves, whose bytes lie one behind the other, and so are those of their list.

Rule: what is decoded again is the same value, to its last digit. A value that the schema can't hold
is an `UnencodableValueError`, never another value; only times that are finer than the schema's unit
are cut off downwards, as Spark's `to_avro` does.

A union other than of null and one type is a struct with a member for each type, `member0` and so
on, of which one is set (`arrow_types.py`). Source: the Avro specification 1.12, binary encoding.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.core.schemas.avro.schema import (
    Array,
    AvroSchema,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)
from storage_engine.protocol.avro.encoding.byte_rows import (
    NumberPart,
    Part,
    joined_rows,
    lengths_of,
    numbers,
    per_list,
    same_number,
    spread,
    without_nulls,
)
from storage_engine.protocol.avro.encoding.encoded_values import fixed_value, plain_value
from storage_engine.protocol.avro.encoding.value_errors import UnencodableValueError
from storage_engine.protocol.records.arrow_binary import numbers_in
from storage_engine.protocol.records.arrow_kernels import as_type, compute, kernel
from storage_engine.protocol.records.varints import Ints, Mask, VarintColumn
from storage_engine.protocol.typed.nested_arrays import binary_values, bits, map_as_list

_LARGEST_BRANCH = 63
"""The last branch of a union whose number takes one byte."""


def encode(schema: AvroSchema, batch: pa.RecordBatch) -> pa.Array:
    """A pa.BinaryArray with a record for each row. The columns of a record's schema are found by
    the names of its fields; one that is missing is null. Of any other schema `batch` has the one
    column. UnencodableValueError for the first value that does not fit."""
    if not isinstance(schema.resolve(schema.root), Record):
        (column,) = batch.columns
        return encode_values(schema, column)
    if not batch.num_rows:
        return joined_rows([], 0)
    return encode_values(
        schema, pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
    )


def encode_values(schema: AvroSchema, values: pa.Array) -> pa.Array:
    """The same of values in one column: structs where the schema is a record."""
    return joined_rows(_Encoder(schema).value(schema.root, values), len(values))


class _Encoder:
    """Encodes values of one schema, and knows its names."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema

    def value(self, schema: AvroType, array: pa.Array) -> list[Part]:
        """The parts of each row's value."""
        if not len(array):
            return []
        schema = self._schema.resolve(schema)
        if isinstance(schema, Union):
            return self._union(schema, array)
        if pa.types.is_null(array.type) and not _is_null(schema):
            raise UnencodableValueError(0, "it is null, and the schema allows no null")
        if array.null_count and not _is_null(schema):
            row = int(np.argmin(_valid(array)))
            raise UnencodableValueError(row, "it is null, and the schema allows no null")
        match schema:
            case Record():
                return self._record(schema, array, len(array))
            case Array():
                return self._array(schema, array)
            case Map():
                return self._map(schema, array)
            case Enum():
                return [numbers(_symbol_numbers(schema, array))]
            case Fixed():
                return [fixed_value(schema, array)]
            case Primitive():
                return plain_value(schema, array)
        raise AssertionError(schema)

    def _record(self, schema: Record, rows: pa.StructArray, count: int) -> list[Part]:
        parts: list[Part] = []
        for field in schema.fields:
            place = rows.type.get_field_index(field.name)
            column = pa.nulls(count) if place < 0 else rows.field(place)
            with _within(field.name):
                parts += self.value(field.type, column)
        return parts

    def _union(self, schema: Union, array: pa.Array) -> list[Part]:
        null_branch = next(
            (branch for branch, each in enumerate(schema.branches) if _is_null(each)), None
        )
        members = [
            (branch, each) for branch, each in enumerate(schema.branches) if branch != null_branch
        ]
        valid = _valid(array)
        if not valid.all() and null_branch is None:
            raise UnencodableValueError(
                int(np.argmin(valid)), "it is null, and the union has no branch for null"
            )
        if not valid.any():
            assert null_branch is not None
            return [same_number(null_branch)]
        widened = _only_column(members, array)
        if widened is not None:
            branch, member = widened
            return self._one_branch(branch, member, array, valid, null_branch)
        return self._several_branches(members, array, valid, null_branch)

    def _one_branch(
        self, branch: int, member: AvroType, array: pa.Array, valid: Mask, null_branch: int | None
    ) -> list[Part]:
        if valid.all():
            return [same_number(branch), *self.value(member, array)]
        assert null_branch is not None
        rows = np.flatnonzero(valid)
        branches = np.where(valid, branch, null_branch)
        return [_branches(branches), *self._of_rows(member, array, valid, rows)]

    def _several_branches(
        self,
        members: list[tuple[int, AvroType]],
        array: pa.Array,
        valid: Mask,
        null_branch: int | None,
    ) -> list[Part]:
        branches = np.full(len(array), -1 if null_branch is None else null_branch, np.int64)
        found = np.zeros(len(array), np.int64)
        parts: list[Part] = []
        for place, (branch, member) in enumerate(members):
            column = array.field(place)
            is_set = _valid(column) & valid
            branches[is_set] = branch
            found += is_set
            rows = np.flatnonzero(is_set)
            if len(rows):
                with _within(f"member{place}"):
                    parts += self._of_rows(member, column, is_set, rows)
        wrong = (found > 1) | ((found == 0) & (valid if null_branch is not None else True))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise UnencodableValueError(
                row, f"{found[row]} members of the union are set, and not one"
            )
        return [_branches(branches), *parts]

    def _of_rows(self, member: AvroType, array: pa.Array, which: Mask, rows: Ints) -> list[Part]:
        """The parts of the values of some rows, over all rows."""
        count = len(array)
        packed = pa.Array.from_buffers(
            pa.bool_(), count, [None, pa.py_buffer(np.packbits(which, bitorder="little"))]
        )
        with _rows_of(rows):
            parts = self.value(member, kernel("filter", _as_list(array), packed))
        spread_parts: list[Part] = []
        for part in parts:
            if not isinstance(part, NumberPart):
                spread_parts.append(spread(part, rows, count))
            elif part.rows is None:
                spread_parts.append(NumberPart(part.values, rows))
            else:
                spread_parts.append(NumberPart(part.values, rows[part.rows]))
        return spread_parts

    def _array(self, schema: Array, array: pa.Array) -> list[Part]:
        starts, elements = _elements(_as_list(array))
        with _lists_of(starts):
            values = joined_rows(self.value(schema.items, elements), len(elements))
        return _blocks(values, starts)

    def _map(self, schema: Map, array: pa.Array) -> list[Part]:
        """Entries are rows of a key and a value."""
        starts, entries = _elements(_as_list(array))
        if not len(entries):
            return [same_number(0)]
        keys = without_nulls(entries.field(0))
        with _lists_of(starts), _within("value"):
            values = self.value(schema.values, entries.field(1))
        rows = joined_rows([numbers(lengths_of(keys)), keys, *values], len(entries))
        return _blocks(rows, starts)


def _only_column(
    members: list[tuple[int, AvroType]], array: pa.Array
) -> tuple[int, AvroType] | None:
    """The branch of all values that are not null, where the column is not a struct of members: the
    only one, or the wider one of two kinds of numbers."""
    if len(members) == 1:
        return members[0]
    if len(members) == 2 and not pa.types.is_struct(array.type):
        kinds = {
            each.name: (branch, each) for branch, each in members if isinstance(each, Primitive)
        }
        if kinds.keys() == {"int", "long"}:
            return kinds["long"]
        if kinds.keys() == {"float", "double"}:
            return kinds["double"]
    return None


def _as_list(array: pa.Array) -> pa.Array:
    """A map as a list of its entries, any other array as it is."""
    return map_as_list(array) if pa.types.is_map(array.type) else array


def _branches(branches: Ints) -> NumberPart:
    if branches.max() > _LARGEST_BRANCH:
        return numbers(branches)
    return NumberPart(VarintColumn((branches << 1).astype(np.uint64), 1))


def _blocks(values: pa.Array, starts: npt.NDArray[np.int32]) -> list[Part]:
    """One block of each list that has elements, and the end."""
    counts = np.diff(starts).astype(np.int64)
    filled = np.flatnonzero(counts)
    if not len(filled):
        return [same_number(0)]
    return [numbers(counts[filled], filled), per_list(values, starts), same_number(0)]


def _elements(array: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Where each list begins among the elements, the end of the last, and the elements."""
    offsets = numbers_in(array.buffers()[1], np.int32, array.offset, len(array) + 1)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - offsets[0], array.values.slice(first, last - first)


def _symbol_numbers(schema: Enum, array: pa.Array) -> Ints:
    symbols = binary_values([symbol.encode() for symbol in schema.symbols]).view(pa.string())
    wanted = compute.SetLookupOptions(value_set=symbols)
    found = kernel("index_in", as_type(array, pa.string()), options=wanted)
    if found.null_count:
        row = int(np.argmin(_valid(found)))
        raise UnencodableValueError(
            row, f"{str(array[row])[:100]!r} is not one of the enum's symbols"
        )
    places = numbers_in(found.buffers()[1], np.int32, found.offset, len(found))
    return places.astype(np.int64)


def _is_null(schema: AvroType) -> bool:
    return isinstance(schema, Primitive) and schema.name == "null"


def _valid(array: pa.Array) -> Mask:
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return bits(kernel("is_valid", array))


@contextmanager
def _within(name: str) -> Iterator[None]:
    """Errors within are of the field `name`."""
    try:
        yield
    except UnencodableValueError as error:
        raise error.within(name) from None


@contextmanager
def _rows_of(rows: Ints) -> Iterator[None]:
    """Errors within count only these rows."""
    try:
        yield
    except UnencodableValueError as error:
        raise error.at(int(rows[error.row])) from None


@contextmanager
def _lists_of(starts: npt.NDArray[np.int32]) -> Iterator[None]:
    """Errors within count elements, of which the lists begin at `starts`."""
    try:
        yield
    except UnencodableValueError as error:
        raise error.at(int(np.searchsorted(starts, error.row, side="right")) - 1) from None
