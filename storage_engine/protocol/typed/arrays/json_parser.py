"""JSON objects as columns, by Arrow's parser; the reverse of `json_text.py`.

Python runs per column and per piece of text, and per record only where Arrow could not read one
(`json_source.py`). `JsonReader.columns` returns the columns of many objects, or raises an error for
an unreadable one, which callers find by halves.
"""

import binascii
import contextlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.topic_schema import SchemaColumn
from storage_engine.protocol.records.arrow_binary import as_column
from storage_engine.protocol.records.arrow_kernels import as_type, kernel
from storage_engine.protocol.records.varints import Ints
from storage_engine.protocol.typed.arrays.json_source import Rewriter, UnreadableJsonError
from storage_engine.protocol.typed.arrays.json_text import joined, text
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.nested_arrays import binary_values, bits, list_lengths

LARGE_BYTES = 1 << 20
"""A longer text is one record with a limit on its signs `{}[]:,`, as memory is needed for each."""
MOST_SIGNS = 8 << 20
MOST_PREPARED_SIGNS = 1 << 20
"""The limit where maps or NaN are looked for, which takes some hundred bytes for each sign."""

_COUNTED_BYTES = 1 << 20
"""The bytes that are counted at once, while no other thread runs."""

_ANY_INTEGER = pa.decimal128(38, 18)
"""The type for reading integers, which may be written with a fraction of zeros."""

_FRAME = "record"
_BLOCK_ROOM = 64
_PREFIX, _SUFFIX = text(f'{{"{_FRAME}":'), text("}\n")


class JsonReader:
    """Reads objects that may have these columns, and no others."""

    def __init__(self, columns: tuple[SchemaColumn, ...]) -> None:
        self._columns = columns
        fields = tuple(types.StructColumnField(each.name, each.type) for each in columns)
        record = types.StructColumn(fields)
        self._rewriter = Rewriter(record)
        self._schema = _schema_of(record, pa.int64())
        self._has_integers = _schema_of(record, _ANY_INTEGER) != self._schema
        self._record = record
        self._leaves = types.least_values(record)
        self._nested_leaves = max(map(_nested_leaves, (each.type for each in columns)), default=0)

    def cells(self, values: pa.Array) -> int:
        """Return about how many values the columns of these objects can have at most, nulls and
        nested ones included: few bytes may become many."""
        nested = max(0, _count(values, b"{") - len(values))
        return len(values) * self._leaves + nested * self._nested_leaves

    def columns(self, values: pa.Array) -> list[pa.Array]:
        """Return an array for each column from a pa.BinaryArray, without nulls, with one JSON
        object each. UnreadableJsonError, without a record's number, when one is not."""
        try:
            return self._columns_of(self._record_as(self._schema, values))
        except UnreadableJsonError as error:
            if not self._has_integers:
                raise
            fault = error
        try:
            # An integer may be written as 1.0 or 1e3. Arrow reads it as a decimal, as which it
            # takes texts, too, and as a float, as which it takes none.
            self._record_as(_schema_of(self._record, pa.float64()), values)
            return self._columns_of(self._record_as(_schema_of(self._record, _ANY_INTEGER), values))
        except UnreadableJsonError:
            raise fault from None

    def _record_as(self, schema: pa.Schema, values: pa.Array) -> pa.Array:
        """Return the objects as a pa.StructArray of the types of the schema."""
        with _in_one_line():
            if len(values) == 1:
                self._check_size(values)
            texts = joined(_PREFIX, as_type(self._readable(values), pa.string()), _SUFFIX)
            _, offsets, data = texts.buffers()
            size = int(np.frombuffer(offsets, np.int32)[len(texts)])
            parsed = self._parsed(data.slice(0, size), schema)
            if parsed.num_rows != len(values):
                raise UnreadableJsonError("a record must be one JSON object")
            record = parsed.column(0).combine_chunks()
            if isinstance(record, pa.ChunkedArray):
                record = pa.concat_arrays(record.chunks)
            if record.null_count:
                raise UnreadableJsonError("a record must be one JSON object, not null")
            return record

    def _readable(self, values: pa.Array) -> pa.Array:
        """Return the objects as Arrow can read them."""
        column = as_column(values, "the values")
        first, last = int(column.offsets[0]), int(column.offsets[-1])
        rewriter = self._rewriter
        if not rewriter.needs(bytes(column.data.slice(first, last - first))):
            return values
        texts: list[bytes] = values.to_pylist()
        return binary_values(
            [rewriter.rewritten(each) if rewriter.needs(each) else each for each in texts]
        )

    def _columns_of(self, record: pa.Array) -> list[pa.Array]:
        with _in_one_line():
            return [_as(record.field(n), each.type) for n, each in enumerate(self._columns)]

    def _check_size(self, values: pa.Array) -> None:
        if int(as_column(values, "the values").lengths[0]) <= LARGE_BYTES:
            return
        most = MOST_PREPARED_SIGNS if self._rewriter.has_work else MOST_SIGNS
        if _count(values, b"{}[]:,") > most:
            raise UnreadableJsonError(
                f"more than {most} colons, commas and braces are in it: send smaller records"
            )

    def _parsed(self, source: pa.Buffer, schema: pa.Schema) -> pa.Table:
        from pyarrow import json

        return json.read_json(
            pa.BufferReader(source),
            read_options=json.ReadOptions(use_threads=False, block_size=source.size + _BLOCK_ROOM),
            parse_options=json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="error"
            ),
        )


@contextlib.contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, binascii.Error) as error:
        raise UnreadableJsonError(" ".join(str(error).split())) from None


def _count(values: pa.Array, characters: bytes) -> int:
    """Return how many of these characters the values have."""
    column = as_column(values, "the values")
    if not len(values):
        return 0
    data = np.frombuffer(column.data, np.uint8)[int(column.offsets[0]) : int(column.offsets[-1])]
    is_counted = np.zeros(256, np.bool_)
    is_counted[np.frombuffer(characters, np.uint8)] = True
    return sum(
        int(np.count_nonzero(is_counted[data[start : start + _COUNTED_BYTES]]))
        for start in range(0, len(data), _COUNTED_BYTES)
    )


def _schema_of(record: types.StructColumn, integers: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(_FRAME, _parsed_type(record, integers))])


def _parsed_type(column_type: types.ColumnType, integers: pa.DataType) -> pa.DataType:
    """Return the type as which Arrow reads the JSON of a type. `integers`: int64 for the types of
    the columns, else the one that all of them are read as."""
    match column_type:
        case types.BinaryColumn() | types.DateColumn() | types.TimestampColumn():
            return pa.string()
        case types.IntervalColumn():
            return integers
        case types.IntegerColumn() if integers != pa.int64():
            return integers
        case types.FloatColumn():
            return pa.float64()
        case types.ArrayColumn(element, _):
            return pa.list_(pa.field("element", _parsed_type(element, integers)))
        case types.MapColumn(key, value, _):
            inner = (_parsed_type(key, integers), _parsed_type(value, integers))
            return pa.list_(pa.struct(list(zip(("key", "value"), inner, strict=True))))
        case types.StructColumn(fields):
            return pa.struct([pa.field(e.name, _parsed_type(e.type, integers)) for e in fields])
        case _:
            return arrow_type(column_type)


def _as(array: pa.Array, column_type: types.ColumnType) -> pa.Array:
    """Make an array of `arrow_type` of one of `_parsed_type`."""
    match column_type:
        case types.BinaryColumn():
            return _bytes_of_base64(array)
        case types.IntegerColumn():
            return _integers(array, arrow_type(column_type))
        case types.IntervalColumn():
            return _integers(array, pa.int64()).view(pa.duration("us"))
        case types.FloatColumn(bits_count):
            return _floats(array, bits_count)
        case types.ArrayColumn(element, _):
            return _lists(array, arrow_type(column_type), _as(array.flatten(), element))
        case types.MapColumn():
            return _maps(array, column_type)
        case types.StructColumn(fields):
            parts = [
                _as(part, each.type) for part, each in zip(array.flatten(), fields, strict=True)
            ]
            kind = arrow_type(column_type)
            mask = kernel("is_null", array) if array.null_count else None
            return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
        case types.DecimalColumn():
            # The parser leaves the number of digits to us.
            array.validate(full=True)
            return array
        case _:
            return as_type(array, arrow_type(column_type))


def _integers(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type != kind:
        array.validate(full=True)
    # Arrow refuses a decimal with a fraction.
    return as_type(array, kind)


def _floats(array: pa.Array, bits_count: int) -> pa.Array:
    if bits_count == 64:
        return array
    narrow = as_type(array, pa.float32())
    infinite = kernel("is_inf", narrow)
    if _any(infinite) and _any(kernel("and", infinite, kernel("is_finite", array))):
        raise UnreadableJsonError("a number is too large for FLOAT")
    return narrow


def _lists(array: pa.Array, kind: pa.DataType, elements: pa.Array) -> pa.Array:
    """Return lists of other elements that are as long as those of `array`."""
    ends = np.zeros(len(array) + 1, np.int32)
    np.cumsum(list_lengths(array), out=ends[1:])
    validity = None
    if array.null_count:
        valid = bits(kernel("is_valid", array))
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        kind, len(array), [validity, pa.py_buffer(ends)], children=[elements]
    )


def _maps(array: pa.Array, column_type: types.MapColumn) -> pa.Array:
    entries = array.flatten()
    if entries.null_count:
        raise UnreadableJsonError("an entry of a MAP is null")
    keys = _as(entries.field(0), column_type.key)
    values = _as(entries.field(1), column_type.value)
    if keys.null_count:
        raise UnreadableJsonError("a key of a MAP is null or missing")
    _check_distinct(keys, list_lengths(array), column_type.key)
    kind = arrow_type(column_type)
    pairs = pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
    return _lists(array, kind, pairs)


def _check_distinct(keys: pa.Array, lengths: Ints, key_type: types.ColumnType) -> None:
    if (
        not len(keys)
        or lengths.max() < 2
        or isinstance(key_type, types.ArrayColumn | types.StructColumn)
    ):
        return
    encoded = kernel("dictionary_encode", keys)
    places = np.frombuffer(encoded.indices.buffers()[1], np.int32)[: len(keys)].astype(np.int64)
    places += np.repeat(np.arange(len(lengths)), lengths) * len(encoded.dictionary)
    if len(np.unique(places)) != len(places):
        raise UnreadableJsonError("a key stands twice in a MAP")


def _bytes_of_base64(array: pa.Array) -> pa.Array:
    result = binary_values([b"" if each is None else _decoded(each) for each in array.to_pylist()])
    if not array.null_count:
        return result
    nothing = pa.nulls(len(array), pa.binary())
    return kernel("if_else", kernel("is_valid", array), result, nothing)


def _decoded(value: str) -> bytes:
    raw = binascii.a2b_base64(value)
    # One text for each value: with padding, and nothing left out.
    if binascii.b2a_base64(raw, newline=False) != value.encode():
        raise UnreadableJsonError("a BINARY is no base64 text with padding, or has more in it")
    return raw


def _any(array: pa.Array) -> bool:
    return bool(kernel("any", array).as_py())


def _nested_leaves(column_type: types.ColumnType) -> int:
    """Return the most values that a struct inside of the type has."""
    match column_type:
        case types.ArrayColumn(element, _):
            return _nested_leaves(element)
        case types.MapColumn(key, value, _):
            return max(2, _nested_leaves(key), _nested_leaves(value))
        case types.StructColumn(fields):
            inside = max((_nested_leaves(each.type) for each in fields), default=0)
            return max(types.least_values(column_type), inside)
        case _:
            return 1
