"""JSON records of clients that don't know typed topics, as a typed batch.

The values are JSON objects of the columns of the schema's latest version; a missing field is null.
All else about a record is in `foreign/records_as_rows.py`.
"""

from uuid import UUID

import pyarrow as pa

from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.records.record_batch import BatchHeader, Codec
from storage_engine.protocol.records.varints import Ints
from storage_engine.protocol.typed.arrays.json_fault import fault_of
from storage_engine.protocol.typed.arrays.json_parser import JsonReader
from storage_engine.protocol.typed.foreign.json_values import json_columns
from storage_engine.protocol.typed.foreign.records_as_rows import typed_from_records


def typed_from_json(
    batch: memoryview,
    header: BatchHeader,
    schema: TopicSchema,
    topic_id: UUID,
    codec: Codec = Codec.NONE,
) -> bytearray:
    """Return the typed batch of a plain one whose header fields are checked already; errors as
    `typed_from_records` has them."""
    visible = schema.latest.visible

    def read(values: pa.Array, numbers: Ints) -> list[pa.Array]:
        reader = JsonReader(visible)
        return json_columns(reader, values, numbers, lambda value: fault_of(value, visible))

    return typed_from_records(batch, header, schema, topic_id, codec, read)
