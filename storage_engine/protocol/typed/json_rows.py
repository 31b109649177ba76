"""Typed batches as clients see them that don't know typed topics: records whose values are JSON.

One typed batch becomes one plain batch of the same offsets, producer, sequence and transaction; a
row becomes a record: the key's text, and a JSON object of all columns of the schema's latest
version that are not hidden. A tombstone's value is null.
"""

import json

import numpy as np
import pyarrow as pa

from storage_engine.core.errors import RecordTooLargeError
from storage_engine.core.typed.column_types import (
    ArrayColumn,
    ColumnType,
    MapColumn,
    StructColumn,
)
from storage_engine.core.typed.topic_schema import SchemaColumn, TopicSchema
from storage_engine.protocol.records.arrow_kernels import as_type, kernel
from storage_engine.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    seal,
)
from storage_engine.protocol.records.record_encoder import encode_in_place
from storage_engine.protocol.typed.arrays.json_text import json_objects, json_texts
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.nested_arrays import boolean_array, map_as_list
from storage_engine.protocol.typed.stored_rows import StoredRows
from storage_engine.protocol.typed.typed_keys import key_texts

MAX_JSON_BYTES = 128 << 20
"""The most bytes of one batch as JSON; a typed batch of common size becomes some megabytes."""

_FIELD_BYTES = len('"":,')


def as_json_batches(batch: memoryview, header: BatchHeader, schema: TopicSchema) -> bytearray:
    """Return the plain batch of a typed one.

    CorruptRecordError when it can't be decoded, RecordTooLargeError when it has too many bytes as
    JSON.
    """
    stored = StoredRows.of_batch(header, batch, schema, max_bytes=MAX_DECOMPRESSED_BYTES)
    values, keys = json_records(stored, schema)
    times = stored.timestamps
    base = int(times[0])
    deltas = times - base
    if header.timestamp_type:
        base, deltas = header.base_timestamp, np.zeros(len(stored), np.int64)
    data = encode_in_place(values, keys, stored.headers, deltas, stored.deltas)
    plain = bytearray(HEADER_BYTES)
    plain += data[HEADER_BYTES:]
    kept_bits = header.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT)
    seal(
        plain,
        0,
        header._replace(length=len(plain) - LENGTH_END, attributes=kept_bits, base_timestamp=base),
    )
    return plain


def json_records(stored: StoredRows, schema: TopicSchema) -> tuple[pa.Array, pa.Array | None]:
    """Return the values and the keys of the rows of a batch as they become records: a
    pa.StringArray and a pa.BinaryArray."""
    rows = len(stored)
    columns = schema.latest.visible
    room = MAX_JSON_BYTES - rows * sum(
        len(json.dumps(column.name)) + _FIELD_BYTES for column in columns
    )
    texts = []
    for column in columns:
        array = _array_of(stored, column)
        room -= least_json_bytes(array, column.type) if room > 0 else 0
        if room <= 0:
            raise _too_large(stored)
        texts.append(json_texts(array, column.type))
        room -= max(0, texts[-1].nbytes - least_json_bytes(array, column.type))
    if room <= 0:
        raise _too_large(stored)
    values = json_objects([column.name for column in columns], texts)
    gone = stored.tombstones
    if gone is not None:
        nothing = pa.nulls(rows, values.type)
        values = kernel("if_else", boolean_array(gone), nothing, values)
    return values, _keys(stored, schema)


def least_json_bytes(array: pa.Array, column_type: ColumnType) -> int:
    """Return about the least bytes that the array takes as JSON, without making it."""
    match column_type:
        case ArrayColumn(element, _):
            return 2 * len(array) + least_json_bytes(array.flatten(), element)
        case MapColumn(key, value, _):
            entries = map_as_list(array).flatten()
            inner = least_json_bytes(entries.field(0), key)
            inner += least_json_bytes(entries.field(1), value)
            return 2 * len(array) + _FIELD_BYTES * len(entries) + inner
        case StructColumn(fields):
            names = sum(len(json.dumps(field.name)) + _FIELD_BYTES for field in fields)
            parts = [least_json_bytes(array.field(n), field.type) for n, field in enumerate(fields)]
            return len(array) * names + sum(parts)
        case _:
            return max(len(array), int(array.nbytes))


def _array_of(stored: StoredRows, column: SchemaColumn) -> pa.Array:
    """Return the column in its latest type."""
    kind = arrow_type(column.type)
    found = stored.column(column.column_id)
    return pa.nulls(len(stored), kind) if found is None else as_type(found[1], kind)


def _keys(stored: StoredRows, schema: TopicSchema) -> pa.Array | None:
    if not schema.key:
        return None
    arrays = [_array_of(stored, column) for column in schema.key_columns(schema.latest)]
    return key_texts(arrays, schema, schema.latest)


def _too_large(stored: StoredRows) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"the typed batch at offset {stored.header.base_offset} has more than {MAX_JSON_BYTES}"
        " bytes as JSON: read it with a client that knows typed topics"
    )
