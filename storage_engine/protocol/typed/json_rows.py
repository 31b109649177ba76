"""Typed batches as clients see them that don't know typed topics: records whose values are JSON.

A row's value is a JSON object of all columns of the schema's latest version that are not hidden.
All else about a record is in `foreign/rows_as_records.py`.
"""

import json

import pyarrow as pa

from storage_engine.core.typed.column_types import (
    ArrayColumn,
    ColumnType,
    MapColumn,
    StructColumn,
)
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.records.arrow_kernels import kernel
from storage_engine.protocol.records.record_batch import BatchHeader
from storage_engine.protocol.typed.arrays.json_text import json_objects, json_texts
from storage_engine.protocol.typed.foreign.rows_as_records import (
    MAX_RECORDS_BYTES,
    latest_column,
    open_rows,
    plain_batch,
    too_large,
)
from storage_engine.protocol.typed.nested_arrays import boolean_array, map_as_list
from storage_engine.protocol.typed.stored_rows import StoredRows

_FIELD_BYTES = len('"":,')


def as_json_batches(batch: memoryview, header: BatchHeader, schema: TopicSchema) -> bytearray:
    """Return the plain batch of a typed one.

    CorruptRecordError when it can't be decoded, RecordTooLargeError when it has too many bytes as
    JSON.
    """
    stored = open_rows(batch, header, schema)
    return plain_batch(stored, schema, _values(stored, schema))


def _values(stored: StoredRows, schema: TopicSchema) -> pa.Array:
    """Return the values of the records as a pa.StringArray."""
    rows = len(stored)
    columns = schema.latest.visible
    room = MAX_RECORDS_BYTES - rows * sum(
        len(json.dumps(column.name)) + _FIELD_BYTES for column in columns
    )
    texts = []
    for column in columns:
        array = latest_column(stored, column)
        room -= least_json_bytes(array, column.type) if room > 0 else 0
        if room <= 0:
            raise too_large(stored, "JSON")
        texts.append(json_texts(array, column.type))
        room -= max(0, texts[-1].nbytes - least_json_bytes(array, column.type))
    if room <= 0:
        raise too_large(stored, "JSON")
    values = json_objects([column.name for column in columns], texts)
    gone = stored.tombstones
    if gone is not None:
        nothing = pa.nulls(rows, values.type)
        values = kernel("if_else", boolean_array(gone), nothing, values)
    return values


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
