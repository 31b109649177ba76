"""Encodes rows of a typed topic as typed batches, column by column.

Python runs per batch and per column, never per row. `directory.py` draws the bytes.
"""

import time
from collections.abc import Container, Iterator
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from storage_engine.core.errors import RecordTooLargeError, UnsupportedCompressionError
from storage_engine.core.typed.column_types import (
    BinaryColumn,
    BooleanColumn,
    ColumnType,
    IntegerColumn,
    StringColumn,
)
from storage_engine.core.typed.topic_schema import SchemaVersion, TopicSchema
from storage_engine.protocol.records.arrow_binary import int64_values, numbers_in
from storage_engine.protocol.records.arrow_kernels import kernel, take
from storage_engine.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    TYPED_BIT,
    BatchHeader,
    Codec,
    advance_sequence,
)
from storage_engine.protocol.records.record_encoder import DEFAULT_BATCH_BYTES, EncodedBatch
from storage_engine.protocol.records.varints import Ints
from storage_engine.protocol.typed.arrays.ipc_message import number_width
from storage_engine.protocol.typed.arrays.row_fit import (
    fitting_columns,
    fitting_headers,
    fitting_system_column,
)
from storage_engine.protocol.typed.column_codec import CODECS, joined_batch, store_column
from storage_engine.protocol.typed.directory import (
    ENTRY_BYTES,
    HEAD_BYTES,
    HEADERS,
    MAX_BOUND_BYTES,
    MAX_ROWS,
    TIMESTAMPS,
    TOMBSTONES,
)
from storage_engine.protocol.typed.nested_arrays import bits, int_array, one_value

LEAST_DICTIONARY_ROWS = 64
"""Fewer rows are not worth a dictionary's second message."""
SAMPLE_ROWS = 512
"""The rows by which it is judged whether a dictionary pays."""
MOST_DISTINCT_SHARE = 4
"""A dictionary pays when at most one in so many values of the sample is distinct, ..."""
LEAST_DICTIONARY_BYTES = 8
"""... and the values have at least so many bytes on average: an index has four."""

_COLUMN_BYTES = ENTRY_BYTES + 2 * MAX_BOUND_BYTES + 160
"""The bytes of a column besides its values: its entry, and the frame of its message."""
_PART_BYTES = 80
"""The bytes that each part of a type adds, with the padding of its buffers."""
_TIME_BYTES = 8
_GROWTHS = 4
"""The most attempts to give a batch more rows."""
_TIMES_BYTES = _COLUMN_BYTES + _PART_BYTES
"""The bytes of the column of timestamps besides its values; a batch may have it."""
_MOST_BATCH_BYTES = MAX_DECOMPRESSED_BYTES // 2
"""The most bytes of a batch before compression; half of what a broker takes apart, since sizes are
estimated."""


class TypedColumn(NamedTuple):
    """A column of a batch that is made."""

    column_id: int
    array: pa.Array
    type: ColumnType | None
    """None for columns that have no bounds in the directory."""


def iter_typed(
    rows: pa.RecordBatch,
    schema: TopicSchema,
    version: SchemaVersion,
    topic_id: UUID,
    *,
    timestamps: pa.Array | None = None,
    headers: pa.Array | None = None,
    tombstones: pa.Array | None = None,
    compression: Codec = Codec.NONE,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    now_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> Iterator[EncodedBatch]:
    """Yield the rows as batches of about `batch_bytes` at most before compression, with at least
    one row each.

    `rows` is a pa.RecordBatch, its columns named as those of `version`, in any order and case, of
    exactly the types of `arrow_types`; a nullable column may be missing. `timestamps` are int64
    milliseconds, where a null is `now_ms` (default: the wall clock); `headers` as HEADERS_TYPE;
    `tombstones` booleans. A tombstone keeps only its key columns. RowsDoNotFitError names what does
    not fit.
    """
    codec, count = codec_number(compression), rows.num_rows
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    times = _times(timestamps, count, now)
    found = _columns(rows, schema, version, headers, tombstones)
    dictionaries = dictionary_columns(found)
    attributes = TYPED_BIT | (TRANSACTIONAL_BIT if transactional else 0)
    blank = BatchHeader(
        0, 0, 0, MAGIC, 0, attributes, 0, 0, 0, producer_id, producer_epoch, base_sequence, 0
    )
    sequence = base_sequence
    plan = _Plan(found, count, batch_bytes)
    for start, stop in plan:
        part = [each._replace(array=each.array.slice(start, stop - start)) for each in found]
        part_times = times if isinstance(times, int) else times[start:stop]
        first, largest, time_column = batch_times(part_times)
        data = encode_typed(
            blank._replace(
                last_offset_delta=stop - start - 1,
                base_timestamp=first,
                max_timestamp=largest,
                base_sequence=sequence,
                records_count=stop - start,
            ),
            part + time_column,
            topic_id=topic_id,
            schema_version=version.version,
            codec=codec,
            dictionaries=dictionaries,
        )
        if len(data) > batch_bytes and plan.halve(start, stop):
            continue
        yield EncodedBatch(data=memoryview(data), record_count=stop - start)
        if sequence >= 0:
            sequence = advance_sequence(sequence, stop - start)


def _columns(
    rows: pa.RecordBatch,
    schema: TopicSchema,
    version: SchemaVersion,
    headers: pa.Array | None,
    tombstones: pa.Array | None,
) -> list[TypedColumn]:
    """Return the columns of all rows but for their times."""
    columns = fitting_columns(rows, schema, version, tombstones=tombstones)
    found = [TypedColumn(column.column_id, array, column.type) for column, array in columns]
    if headers is not None:
        found.append(TypedColumn(HEADERS, fitting_headers(headers, rows.num_rows), None))
    if tombstones is not None and bits(tombstones).any():
        found.append(TypedColumn(TOMBSTONES, tombstones, BooleanColumn()))
    return found


def codec_number(compression: Codec) -> int:
    """Return the directory's number of a codec; UnsupportedCompressionError for those that columns
    don't have."""
    try:
        return CODECS[compression]
    except KeyError:
        raise UnsupportedCompressionError(
            f"the columns of typed topics can't be compressed by {Codec(compression).name.lower()}:"
            " use none, lz4 or zstd"
        ) from None


def encode_typed(
    header: BatchHeader,
    columns: list[TypedColumn],
    *,
    topic_id: UUID,
    schema_version: int,
    codec: int,
    dictionaries: set[int] | None = None,
) -> bytearray:
    """Return the sealed batch of these columns, whose arrays have `header.records_count` values and
    the types of `arrow_types`. A column of nulls alone is left out. `dictionaries` are the ids of
    columns that are tried with a dictionary."""
    stored = [
        store_column(
            column.column_id, _with_dictionary(column, dictionaries or ()), column.type, codec
        )
        for column in columns
        if column.array.null_count < len(column.array)
    ]
    return joined_batch(header, stored, topic_id=topic_id, schema_version=schema_version)


def _with_dictionary(column: TypedColumn, dictionaries: Container[int]) -> pa.Array:
    array = column.array
    if column.column_id in dictionaries and len(array) >= LEAST_DICTIONARY_ROWS:
        encoded = kernel("dictionary_encode", array)
        if len(encoded.dictionary) * MOST_DISTINCT_SHARE <= len(array):
            return encoded
    return array


def dictionary_columns(columns: list[TypedColumn]) -> set[int]:
    """Return the ids of the columns for which a dictionary is likely to pay."""
    return {each.column_id for each in columns if _dictionary_pays(each)}


def _dictionary_pays(column: TypedColumn) -> bool:
    """Judge by a sample of the values, from all over the rows."""
    if not isinstance(column.type, StringColumn | BinaryColumn):
        return False
    array = column.array
    count = len(array)
    if count < LEAST_DICTIONARY_ROWS:
        return False
    if count > SAMPLE_ROWS:
        array = take(array, _sample(count))
    values = len(array) - array.null_count
    if not values:
        return False
    if _bytes_of(array) < LEAST_DICTIONARY_BYTES * values:
        return False
    distinct = len(kernel("unique", array))
    return bool(distinct * MOST_DISTINCT_SHARE <= values)


def _bytes_of(array: pa.Array) -> int:
    """Return the bytes of all texts of an array, one or more; nulls have none."""
    if array.null_count:
        return int(kernel("sum", kernel("binary_length", array)).as_py())
    offsets = numbers_in(array.buffers()[1], np.int32, array.offset, len(array) + 1)
    return int(offsets[-1]) - int(offsets[0])


@lru_cache(maxsize=64)
def _sample(count: int) -> pa.Array:
    """Return the rows that are looked at of so many."""
    return int_array(np.linspace(0, count - 1, SAMPLE_ROWS).astype(np.int64))


def _times(timestamps: pa.Array | None, count: int, now_ms: int) -> Ints | int:
    if timestamps is None:
        return now_ms
    timestamps = fitting_system_column(timestamps, pa.int64(), count, "timestamps")
    if timestamps.null_count:
        now = one_value(pa.int64(), now_ms.to_bytes(8, "little", signed=True))
        timestamps = kernel("coalesce", timestamps, now)
    return int64_values(timestamps)


def batch_times(times: Ints | int) -> tuple[int, int, list[TypedColumn]]:
    """Return the header's base and max timestamp, and the column of timestamps unless they are all
    the same."""
    if isinstance(times, int):
        return times, times, []
    least, largest = int(times.min()), int(times.max())
    if least == largest:
        return least, largest, []
    column = TypedColumn(TIMESTAMPS, int_array(times), IntegerColumn(64))
    return int(times[0]), largest, [column]


class _Plan:
    """The division of rows into batches. Sizes are estimated before a batch is made, by the bytes
    of its arrays; a batch that turns out too large is made again as two."""

    def __init__(self, columns: list[TypedColumn], rows: int, batch_bytes: int) -> None:
        self._rows = rows
        arrays = [column.array for column in columns]
        # Numbers without nulls have one size: to ask Arrow for that of a part takes longer than to
        # write it.
        widths = [0 if array.null_count else number_width(array.type) for array in arrays]
        self._fixed_bytes = _TIME_BYTES + sum(widths)
        others = [array for array, width in zip(arrays, widths, strict=True) if not width]
        # Only their sizes matter.
        names = [str(n) for n in range(len(others))]
        self._others = pa.RecordBatch.from_arrays(others, names) if others else None
        parts = sum(map(_parts, (array.type for array in arrays)))
        fixed = HEADER_BYTES + HEAD_BYTES + len(arrays) * _COLUMN_BYTES + parts * _PART_BYTES
        self._room = max(1, min(batch_bytes, _MOST_BATCH_BYTES) - fixed - _TIMES_BYTES)
        self._row_bytes = self._size(0, rows) / rows if rows else 1.0
        self._halves: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        start = 0
        while start < self._rows:
            stop = self._stop(start)
            self._halves.append((start, stop))
            while self._halves:
                yield self._halves.pop()
            start = stop

    def halve(self, start: int, stop: int) -> bool:
        """Make two batches of the rows of one that was too large; return False when it is a single
        row."""
        if stop - start == 1:
            return False
        middle = (start + stop) // 2
        self._halves += [(middle, stop), (start, middle)]
        return True

    def _stop(self, start: int) -> int:
        most = min(self._rows - start, MAX_ROWS)
        count = max(1, min(most, int(self._room / self._row_bytes)))
        size = self._size(start, count)
        while size > self._room and count > 1:
            # At least an eighth less, so that this ends soon.
            count = max(1, min(int(count * self._room / size), count - count // 8 - 1))
            size = self._size(start, count)
        for _ in range(_GROWTHS):
            # The rows before were larger.
            more = min(most, int(count * self._room / size))
            if more <= count + count // 8:
                break
            most = more
            grown = self._size(start, more)
            if grown > self._room:
                most = more = (count + more) // 2
                grown = self._size(start, more)
            if grown <= self._room:
                count, size = more, grown
        if count == 1 and size > MAX_DECOMPRESSED_BYTES:
            raise RecordTooLargeError(
                f"row {start} has {size} bytes, at most {MAX_DECOMPRESSED_BYTES} are possible"
            )
        self._row_bytes = max(size / count, 1.0)
        return start + count

    def _size(self, start: int, count: int) -> int:
        others = 0 if self._others is None else int(self._others.slice(start, count).nbytes)
        return others + count * self._fixed_bytes


def _parts(kind: pa.DataType) -> int:
    return 1 + sum(_parts(kind.field(n).type) for n in range(kind.num_fields))
