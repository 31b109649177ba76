"""Typed batches as clients see them that don't know typed topics: records whose values are Avro.

A row's value is a record of all columns of the schema's latest version that are not hidden, in the
schema that `avro_text` gives that version, behind Confluent's framing. All else about a record is
in `foreign/rows_as_records.py`.
"""

from functools import lru_cache

import pyarrow as pa

from storage_engine.core.schemas.avro.schema import AvroSchema
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.avro_text import version_schema
from storage_engine.core.typed.topic_schema import SchemaVersion, TopicSchema
from storage_engine.protocol.avro.encode import encode
from storage_engine.protocol.avro.encoding.byte_rows import with_nulls
from storage_engine.protocol.avro.encoding.value_errors import UnencodableValueError
from storage_engine.protocol.avro.framing import FRAMING_BYTES, framed
from storage_engine.protocol.records.arrow_kernels import kernel
from storage_engine.protocol.records.record_batch import BatchHeader
from storage_engine.protocol.typed.foreign.identity import Same
from storage_engine.protocol.typed.foreign.rows_as_records import (
    MAX_RECORDS_BYTES,
    latest_column,
    open_rows,
    plain_batch,
    too_large,
)
from storage_engine.protocol.typed.nested_arrays import boolean_array, map_as_list
from storage_engine.protocol.typed.stored_rows import StoredRows
from storage_engine.protocol.typed.typed_batch import damaged

_MAX_SCHEMAS = 256
"""The schemas that are kept."""


def as_avro_batches(
    batch: memoryview, header: BatchHeader, schema: TopicSchema, schema_id: int
) -> bytearray:
    """Return the plain batch of a typed one. `schema_id` is that of `avro_text` for the latest
    version of the schema.

    CorruptRecordError when it can't be decoded, RecordTooLargeError when it has too many bytes as
    Avro.
    """
    stored = open_rows(batch, header, schema)
    return plain_batch(stored, schema, _values(stored, schema.latest, schema_id))


def _values(stored: StoredRows, version: SchemaVersion, schema_id: int) -> pa.Array:
    """Return the values of the records as a pa.BinaryArray."""
    columns = version.visible
    room = MAX_RECORDS_BYTES - len(stored) * FRAMING_BYTES
    arrays = []
    for column in columns:
        arrays.append(latest_column(stored, column))
        room -= least_avro_bytes(arrays[-1], column.type)
        if room <= 0:
            raise too_large(stored, "Avro")
    rows = pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])
    gone = stored.tombstones
    if gone is not None:
        rows = kernel("filter", rows, boolean_array(~gone))
    try:
        bodies = encode(_schema_of(Same(version)), rows)
    except UnencodableValueError as error:
        raise damaged(stored.header, str(error)) from None
    if bodies.nbytes > MAX_RECORDS_BYTES:
        raise too_large(stored, "Avro")
    values = framed(schema_id, bodies)
    return values if gone is None else with_nulls(values, ~gone)


def least_avro_bytes(array: pa.Array, column_type: types.ColumnType) -> int:
    """Return about the least bytes that the array takes as Avro, without making it: none less than
    its texts, and one for each value."""
    match column_type:
        case types.ArrayColumn(element, _):
            return len(array) + least_avro_bytes(array.flatten(), element)
        case types.MapColumn(key, value, _):
            entries = map_as_list(array).flatten()
            inner = least_avro_bytes(entries.field(0), key)
            return len(array) + inner + least_avro_bytes(entries.field(1), value)
        case types.StructColumn(fields):
            return sum(least_avro_bytes(array.field(n), each.type) for n, each in enumerate(fields))
        case types.StringColumn() | types.BinaryColumn():
            return len(array) + int(array.nbytes) - 4 * len(array)
        case _:
            return len(array)


@lru_cache(maxsize=_MAX_SCHEMAS)
def _schema_of(version: Same[SchemaVersion]) -> AvroSchema:
    return version_schema(version.value, "row")
