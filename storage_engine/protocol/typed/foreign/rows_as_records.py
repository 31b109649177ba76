"""Typed batches as clients see them that don't know typed topics: records, in some format.

One typed batch becomes one plain batch of the same offsets, producer, sequence and transaction; a
row becomes a record: the key's text, and a value in the format. A tombstone's value is null.
"""

import numpy as np
import pyarrow as pa

from storage_engine.core.errors import RecordTooLargeError
from storage_engine.core.typed.topic_schema import SchemaColumn, TopicSchema
from storage_engine.protocol.records.arrow_kernels import as_type
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
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.stored_rows import StoredRows
from storage_engine.protocol.typed.typed_keys import key_texts

MAX_RECORDS_BYTES = 128 << 20
"""The most bytes of one batch as records; a typed batch of common size becomes some megabytes."""


def open_rows(batch: memoryview, header: BatchHeader, schema: TopicSchema) -> StoredRows:
    """Return the rows of a typed batch; CorruptRecordError when it is damaged."""
    return StoredRows.of_batch(header, batch, schema, max_bytes=MAX_DECOMPRESSED_BYTES)


def latest_column(stored: StoredRows, column: SchemaColumn) -> pa.Array:
    """Return the column in its latest type."""
    kind = arrow_type(column.type)
    found = stored.column(column.column_id)
    return pa.nulls(len(stored), kind) if found is None else as_type(found[1], kind)


def plain_batch(stored: StoredRows, schema: TopicSchema, values: pa.Array) -> bytearray:
    """Return the plain batch of rows whose values are these, null for tombstones."""
    header, times = stored.header, stored.timestamps
    base = int(times[0])
    deltas = times - base
    if header.timestamp_type:
        base, deltas = header.base_timestamp, np.zeros(len(stored), np.int64)
    keys = _keys(stored, schema)
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


def _keys(stored: StoredRows, schema: TopicSchema) -> pa.Array | None:
    if not schema.key:
        return None
    arrays = [latest_column(stored, column) for column in schema.key_columns(schema.latest)]
    return key_texts(arrays, schema, schema.latest)


def too_large(stored: StoredRows, name: str) -> RecordTooLargeError:
    """Return the error for a batch that is more than MAX_RECORDS_BYTES in a format."""
    return RecordTooLargeError(
        f"the typed batch at offset {stored.header.base_offset} has more than {MAX_RECORDS_BYTES}"
        f" bytes as {name}: read it with a client that knows typed topics"
    )
