"""The key of each row as bytes: for partitions, for foreign clients, and for compaction.

    key columns   key
    none          null
    one           its text: a string's UTF-8, a binary's bytes, else the JSON without quotes
    several       a JSON object of them, in the key's order

Equal keys have equal bytes, in every version of the schema: key columns never change.
"""

import pyarrow as pa

from storage_engine.core.typed.column_types import BinaryColumn
from storage_engine.core.typed.topic_schema import SchemaVersion, TopicSchema
from storage_engine.protocol.records.arrow_kernels import as_type
from storage_engine.protocol.typed.arrays.json_text import json_objects, json_texts, plain_texts


def key_bytes(rows: pa.RecordBatch, schema: TopicSchema, version: SchemaVersion) -> pa.Array:
    """Return a pa.BinaryArray with the key of each row of a pa.RecordBatch, which has the key's
    columns by their names, in any case, in the types of `arrow_types`."""
    if not schema.key:
        return pa.nulls(rows.num_rows, pa.binary())
    places = {name.lower(): place for place, name in enumerate(rows.schema.names)}
    columns = schema.key_columns(version)
    arrays = [rows.column(places[column.name.lower()]) for column in columns]
    return key_texts(arrays, schema, version)


def key_texts(arrays: list[pa.Array], schema: TopicSchema, version: SchemaVersion) -> pa.Array:
    """Do the same from the arrays of the key's columns, in the key's order."""
    columns = schema.key_columns(version)
    if len(columns) == 1:
        (column,), (array,) = columns, arrays
        if isinstance(column.type, BinaryColumn):
            return array
        return as_type(plain_texts(array, column.type), pa.binary())
    texts = [json_texts(a, c.type) for a, c in zip(arrays, columns, strict=True)]
    return as_type(json_objects([column.name for column in columns], texts), pa.binary())
