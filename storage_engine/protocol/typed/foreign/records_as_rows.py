"""Records of clients that don't know typed topics, as a typed batch.

One plain batch becomes exactly one typed batch with the same number of rows, and the same sequence,
epoch, transaction, timestamps and headers. What the values are is known to the format alone
(`ReadValues`). A key may be null, or must be the one that `typed_keys` gives the row; key columns
that a value leaves out are taken from it, and a key with a null value is a tombstone. The first
record that does not fit is named by its number.
"""

import json
from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.printable import printable
from storage_engine.core.typed.column_types import (
    BinaryColumn,
    BooleanColumn,
    DecimalColumn,
    IntegerColumn,
    StringColumn,
)
from storage_engine.core.typed.topic_schema import SchemaColumn, TopicSchema
from storage_engine.protocol.records.arrow_binary import int64_values
from storage_engine.protocol.records.arrow_kernels import as_type, kernel, take
from storage_engine.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from storage_engine.protocol.records.record_batch import (
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    TYPED_BIT,
    BatchHeader,
    Codec,
)
from storage_engine.protocol.records.record_decoder import DecodedRecords, decode_batches
from storage_engine.protocol.records.varints import Ints
from storage_engine.protocol.typed.arrays.json_parser import JsonReader
from storage_engine.protocol.typed.arrays.json_text import joined, text
from storage_engine.protocol.typed.arrays.row_fit import fitting_arrays, fitting_headers
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.directory import HEADERS, MAX_ROWS, TOMBSTONES
from storage_engine.protocol.typed.foreign.json_values import json_columns
from storage_engine.protocol.typed.foreign.limits import too_large
from storage_engine.protocol.typed.nested_arrays import bits, boolean_array, first_bad, int_array
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError, shown
from storage_engine.protocol.typed.typed_encoder import (
    TypedColumn,
    batch_times,
    codec_number,
    dictionary_columns,
    encode_typed,
)
from storage_engine.protocol.typed.typed_keys import key_texts

ReadValues: TypeAlias = Callable[[pa.Array, Ints], list[pa.Array]]
"""Makes an array for each visible column of one or more values, a pa.BinaryArray without nulls.
RowsDoNotFitError names the first that does not fit by its record's number, of which the second
argument has one for each value."""


def typed_from_records(
    batch: memoryview,
    header: BatchHeader,
    schema: TopicSchema,
    topic_id: UUID,
    codec: Codec,
    read: ReadValues,
) -> bytearray:
    """Return the typed batch of a plain one whose CRC and header fields are checked already.

    RowsDoNotFitError, an InvalidRecordError, names the first record that does not fit;
    CorruptRecordError for damaged records, RecordTooLargeError for too many values.
    """
    records = decode_batches(
        [batch],
        include_headers=True,
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
        check_crcs=False,
    )
    count = header.records_count
    if len(records) != count or header.last_offset_delta != count - 1:
        raise CorruptRecordError(f"a record batch of {count} records has {len(records)}")
    if count > MAX_ROWS:
        raise too_large(f"{count} records")
    rows = _Rows(records, schema, read)
    arrays = rows.columns()
    found = [TypedColumn(column.column_id, array, column.type) for column, array in arrays]
    if records.headers.null_count < count:
        headers = fitting_headers(records.headers, count)
        found.append(TypedColumn(HEADERS, headers, None))
    if rows.gone is not None:
        found.append(TypedColumn(TOMBSTONES, boolean_array(rows.gone), BooleanColumn()))
    first, largest, times = batch_times(int64_values(records.timestamps_ms))
    kept_bits = header.attributes & (TRANSACTIONAL_BIT | TIMESTAMP_TYPE_BIT)
    return encode_typed(
        header._replace(
            attributes=kept_bits | TYPED_BIT, base_timestamp=first, max_timestamp=largest
        ),
        found + times,
        topic_id=topic_id,
        schema_version=schema.latest.version,
        codec=codec_number(codec),
        dictionaries=dictionary_columns(found),
    )


class _Rows:
    """The records of a batch, as they become rows of the schema's latest version."""

    def __init__(self, records: DecodedRecords, schema: TopicSchema, read: ReadValues) -> None:
        self._schema = schema
        self._read = read
        self._version = schema.latest
        self._keys, self._values = records.keys, records.values
        self.gone = bits(kernel("is_null", records.values)) if records.values.null_count else None
        """A numpy column that is true for tombstones; None when there are none."""

    def columns(self) -> list[tuple[SchemaColumn, pa.Array]]:
        """Return the columns with their arrays, for all records."""
        visible = self._version.visible
        arrays = self._live_columns(visible)
        if self.gone is not None:
            arrays = self._with_tombstones(visible, arrays)
        fitting = fitting_arrays(arrays, self._schema, self._version, self.gone)
        self._check_keys({column.column_id: array for column, array in fitting})
        return fitting

    def _live_columns(self, visible: tuple[SchemaColumn, ...]) -> list[pa.Array]:
        """Return the columns of the records that are no tombstones."""
        values, numbers = self._values, np.arange(len(self._values))
        if self.gone is not None:
            numbers = np.flatnonzero(~self.gone)
            values = take(values, int_array(numbers))
        if not len(values):
            return [pa.nulls(0, arrow_type(column.type)) for column in visible]
        return self._with_keys(visible, self._read(values, numbers), numbers)

    def _with_keys(
        self, visible: tuple[SchemaColumn, ...], arrays: list[pa.Array], numbers: Ints
    ) -> list[pa.Array]:
        """Return the columns with those of the key taken from keys where values leave them out."""
        places = {c.column_id: n for n, c in enumerate(visible) if c.column_id in self._schema.key}
        missing = np.zeros(len(numbers), np.bool_)
        for place in places.values():
            if arrays[place].null_count:
                missing |= bits(kernel("is_null", arrays[place]))
        if not missing.any():
            return arrays
        keys = self._keys if self.gone is None else take(self._keys, int_array(numbers))
        rows = np.flatnonzero(missing & bits(kernel("is_valid", keys)))
        if not len(rows):
            return arrays
        found = self._key_columns(take(keys, int_array(rows)), numbers[rows])
        for column_id, array in zip(self._schema.key, found, strict=True):
            place = places[column_id]
            arrays[place] = kernel("coalesce", arrays[place], _spread(array, rows, len(numbers)))
        return arrays

    def _with_tombstones(
        self, visible: tuple[SchemaColumn, ...], live: list[pa.Array]
    ) -> list[pa.Array]:
        """Return the columns of all records; those of tombstones come from their keys."""
        assert self.gone is not None
        numbers = np.flatnonzero(self.gone)
        keys = take(self._keys, int_array(numbers))
        self._check_has_key(keys, numbers)
        of_keys = dict(zip(self._schema.key, self._key_columns(keys, numbers), strict=True))
        places = np.empty(len(self.gone), np.int64)
        places[~self.gone] = np.arange(len(self.gone) - len(numbers))
        places[numbers] = np.arange(len(self.gone) - len(numbers), len(self.gone))
        order = int_array(places)
        arrays = []
        for column, array in zip(visible, live, strict=True):
            part = of_keys.get(column.column_id)
            if part is None:
                part = pa.nulls(len(numbers), array.type)
            arrays.append(take(pa.concat_arrays([array, part]), order))
        return arrays

    def _check_has_key(self, keys: pa.Array, numbers: Ints) -> None:
        if not self._schema.key:
            raise RowsDoNotFitError(
                f"record {int(numbers[0])} has a null value, but the topic has no key columns: send"
                " a JSON object",
                row=int(numbers[0]),
            )
        if keys.null_count:
            row = int(numbers[int(np.argmax(bits(kernel("is_null", keys))))])
            raise RowsDoNotFitError(
                f"record {row} has neither a key nor a value: send a JSON object", row=row
            )

    def _key_columns(self, keys: pa.Array, numbers: Ints) -> list[pa.Array]:
        """Return the key columns of tombstones from their keys."""
        columns = self._schema.key_columns(self._version)
        texts = keys
        if len(columns) == 1:
            (column,) = columns
            if isinstance(column.type, BinaryColumn):
                return [keys]
            if isinstance(column.type, StringColumn):
                return [self._decoded(keys, numbers)]
            quote = "" if _is_bare(column) else '"'
            name = _object_of(column)
            texts = as_type(
                joined(text(f"{name}{quote}"), self._decoded(keys, numbers), text(f"{quote}}}")),
                pa.binary(),
            )
        return json_columns(JsonReader(columns), texts, numbers, _key_fault)

    def _decoded(self, keys: pa.Array, numbers: Ints) -> pa.Array:
        """Return keys as texts; they must be UTF-8."""
        try:
            return as_type(keys, pa.string())
        except pa.ArrowException:
            place = first_bad(len(keys), lambda start, stop: as_type(keys[start:stop], pa.string()))
            row = int(numbers[place])
            raise RowsDoNotFitError(f"record {row} has a key that is not UTF-8", row=row) from None

    def _check_keys(self, arrays: dict[int, pa.Array]) -> None:
        """RowsDoNotFitError for a key that is neither null nor that of its key columns."""
        keys = self._keys
        if keys.null_count == len(keys):
            return
        if not self._schema.key:
            row = int(np.argmax(bits(kernel("is_valid", keys))))
            raise RowsDoNotFitError(
                f"record {row} has the key {shown(keys[row].as_py())}, but the topic has no key"
                " columns: send none",
                row=row,
            )
        expected = key_texts(
            [arrays[each] for each in self._schema.key], self._schema, self._version
        )
        differs = kernel("not_equal", keys, expected)
        wrong = bits(differs) & bits(kernel("is_valid", differs))
        if wrong.any():
            row = int(np.argmax(wrong))
            names = ", ".join(
                f"'{printable(column.name)}'" for column in self._schema.key_columns(self._version)
            )
            raise RowsDoNotFitError(
                f"record {row} has the key {shown(keys[row].as_py())}, its key columns {names} say"
                f" {shown(expected[row].as_py())}: send that key, or none",
                row=row,
            )


def _spread(array: pa.Array, rows: Ints, count: int) -> pa.Array:
    """Return `count` values: those of the array at `rows`, and null elsewhere."""
    places = np.full(count, len(array), np.int64)
    places[rows] = np.arange(len(array))
    return take(pa.concat_arrays([array, pa.nulls(1, array.type)]), int_array(places))


def _object_of(column: SchemaColumn) -> str:
    """Return the beginning of a JSON object with this column."""
    return f"{{{json.dumps(column.name, ensure_ascii=False)}:"


def _is_bare(column: SchemaColumn) -> bool:
    return isinstance(column.type, BooleanColumn | IntegerColumn | DecimalColumn)


def _key_fault(value: bytes) -> tuple[str, str]:
    return "", "its key is not the one of the key columns"
