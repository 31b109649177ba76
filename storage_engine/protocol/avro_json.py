"""Values in Avro as JSON text. Decoded columns become texts by Arrow's kernels, as those of typed
topics do (`typed/arrays/json_text`), but for these:

    union                   the value of its branch
    enum                    string
    fixed, duration         string, base64
    time-*, timestamp-nanos number, as it is stored
    map                     object

A few bytes may stand for a long text: empty records in a list have their fields' names. So texts
are counted before they are made, and values that would have too long a text have none.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from storage_engine.core.schemas.avro.schema import (
    Array,
    AvroSchema,
    AvroType,
    Enum,
    Map,
    Record,
    Union,
)
from storage_engine.core.typed import column_types as types
from storage_engine.protocol.avro.arrays import taken, texts
from storage_engine.protocol.avro.arrow_types import is_null, widened
from storage_engine.protocol.avro.decode import Decoder
from storage_engine.protocol.records.arrow_binary import numbers_in
from storage_engine.protocol.records.arrow_kernels import kernel
from storage_engine.protocol.typed.arrays.json_text import (
    joined,
    json_lists,
    json_objects,
    json_texts,
    text,
    with_nulls,
)
from storage_engine.protocol.typed.nested_arrays import map_as_list

_MOST_ESCAPED = 6
"""A control character becomes so many."""
_NUMBER_CHARS = 50
_NULL, _EMPTY = texts(("null",)), texts(("{}",))
_SIMPLE: dict[pa.DataType, types.ColumnType] = {
    pa.bool_(): types.BooleanColumn(),
    pa.int32(): types.IntegerColumn(32),
    pa.int64(): types.IntegerColumn(64),
    pa.float32(): types.FloatColumn(32),
    pa.float64(): types.FloatColumn(64),
    pa.string(): types.StringColumn(),
    pa.binary(): types.BinaryColumn(),
    pa.date32(): types.DateColumn(),
}


class JsonPiece(NamedTuple):
    """The texts of some rows that lie one after the other, the first of which is `row`."""

    row: int
    texts: pa.Array
    """A pa.StringArray; what stands for a row with a reason has no meaning."""
    reasons: dict[int, str]
    """By row, counted as `row` is: why it has no text."""


class AvroJson:
    """Reads records that were written with one schema."""

    def __init__(self, schema: AvroSchema, most_chars: int) -> None:
        """`most_chars`: the most of the texts that are made at once, and of one. InvalidSchemaError
        where the decoder can't read the schema, as a recursive one."""
        self._schema = schema
        self._most_chars = most_chars
        self._decoder = Decoder(schema)
        self._longest_symbol = max(
            (
                len(symbol)
                for each in schema.names.values()
                if isinstance(each, Enum)
                for symbol in each.symbols
            ),
            default=0,
        )

    def read(self, bodies: pa.BinaryArray) -> Iterator[JsonPiece]:
        """Yield the texts of all rows, none of which is null, in their order."""
        waiting = [(0, len(bodies))]
        while waiting:
            first, stop = waiting.pop()
            piece = self._piece(bodies.slice(first, stop - first), first)
            if piece is not None:
                yield piece
            elif stop - first == 1:
                reason = f"its JSON would have more than {self._most_chars >> 20} MiB"
                yield JsonPiece(first, taken(_EMPTY, np.zeros(1, np.int64)), {first: reason})
            else:
                middle = (first + stop) // 2
                waiting += [(middle, stop), (first, middle)]

    def _piece(self, bodies: pa.BinaryArray, first: int) -> JsonPiece | None:
        """Return None where the texts could be too long."""
        if self._longest_symbol * _size_of(bodies) > self._most_chars:
            return None
        decoded = self._decoder.decode(bodies)
        batch, root = decoded.batch, self._schema.resolve(self._schema.root)
        columns = batch.columns
        if isinstance(root, Record):
            chars = _record_chars(self._schema, root, columns, batch.num_rows)
        else:
            chars = _chars(self._schema, root, columns[0])
        if chars > self._most_chars:
            return None
        if isinstance(root, Record):
            found = _record_texts(self._schema, root, columns, batch.num_rows)
        else:
            found = _texts(self._schema, root, columns[0])
        return JsonPiece(first, found, {first + each.row: each.reason for each in decoded.damaged})


def _size_of(bodies: pa.BinaryArray) -> int:
    offsets = numbers_in(bodies.buffers()[1], np.int32, bodies.offset, len(bodies) + 1)
    return int(offsets[-1]) - int(offsets[0])


def _texts(schema: AvroSchema, avro_type: AvroType, array: pa.Array) -> pa.Array:
    """Return a pa.StringArray with the JSON of each value. No text is null."""
    found = schema.resolve(avro_type)
    match found:
        case Array():
            items = array.flatten()
            return with_nulls(json_lists(array, _texts(schema, found.items, items)), array)
        case Map():
            entries = map_as_list(array)
            parts = entries.flatten()
            names = json_texts(parts.field(0), types.StringColumn())
            members = joined(names, text(":"), _texts(schema, found.values, parts.field(1)))
            return with_nulls(json_lists(entries, members, brackets="{}"), array)
        case Record():
            parts = [array.field(number) for number in range(len(found.fields))]
            return with_nulls(_record_texts(schema, found, parts, len(array)), array)
        case Union() if widened(schema, found) is None:
            return _union_texts(schema, found, array)
    if pa.types.is_null(array.type):
        return _repeated(_NULL, len(array))
    return json_texts(array, _column_type(array.type))


def _record_texts(
    schema: AvroSchema, record: Record, columns: list[pa.Array], count: int
) -> pa.Array:
    if not columns:
        return _repeated(_EMPTY, count)
    names = [each.name for each in record.fields]
    values = [
        _texts(schema, each.type, column)
        for each, column in zip(record.fields, columns, strict=True)
    ]
    return json_objects(names, values)


def _union_texts(schema: AvroSchema, union: Union, array: pa.Array) -> pa.Array:
    members = [each for each in union.branches if not is_null(schema, each)]
    if len(members) == 1:
        return _texts(schema, members[0], array)
    found = _repeated(_NULL, len(array))
    for number, each in enumerate(members):
        values = array.field(number)
        found = kernel("if_else", kernel("is_valid", values), _texts(schema, each, values), found)
    return with_nulls(found, array)


def _repeated(one: pa.Array, count: int) -> pa.Array:
    return taken(one, np.zeros(count, np.int64))


def _column_type(kind: pa.DataType) -> types.ColumnType:
    if pa.types.is_decimal(kind):
        return types.DecimalColumn(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return types.TimestampColumn(kind.tz is not None)
    return _SIMPLE[kind]


def _chars(schema: AvroSchema, avro_type: AvroType, array: pa.Array) -> int:
    """Return how many characters the texts have at most."""
    found = schema.resolve(avro_type)
    count = len(array)
    match found:
        case Array():
            items = array.flatten()
            return 4 * count + len(items) + _chars(schema, found.items, items)
        case Map():
            parts = map_as_list(array).flatten()
            keys = _text_chars(parts.field(0))
            return 4 * count + 2 * len(parts) + keys + _chars(schema, found.values, parts.field(1))
        case Record():
            parts = [array.field(number) for number in range(len(found.fields))]
            return 4 * count + _record_chars(schema, found, parts, count - array.null_count)
        case Union() if widened(schema, found) is None:
            members = [each for each in found.branches if not is_null(schema, each)]
            if len(members) == 1:
                return _chars(schema, members[0], array)
            return 4 * count + sum(
                _chars(schema, each, array.field(number)) for number, each in enumerate(members)
            )
    return _text_chars(array)


def _record_chars(schema: AvroSchema, record: Record, columns: list[pa.Array], count: int) -> int:
    names = sum(len(each.name) + 4 for each in record.fields)
    return (names + 4) * count + sum(
        _chars(schema, each.type, column)
        for each, column in zip(record.fields, columns, strict=True)
    )


def _text_chars(array: pa.Array) -> int:
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        return _MOST_ESCAPED * _size_of(array) + 4 * len(array)
    values: int = len(array) - array.null_count
    return _NUMBER_CHARS * values + 4 * len(array)
