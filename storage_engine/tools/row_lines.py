"""Rows of topics with a schema as lines of text: a JSON object each. No Python runs per row."""

import pyarrow as pa

from storage_engine.client.fetching.typed_reading import TypedReading
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.column_types import (
    ArrayColumn,
    BinaryColumn,
    BooleanColumn,
    ColumnType,
    IntegerColumn,
    StringColumn,
    StructColumn,
    StructColumnField,
    TimestampColumn,
)
from storage_engine.protocol.typed.arrays.json_text import json_objects, json_texts
from storage_engine.protocol.typed.typed_decoder import TypedRows
from storage_engine.tools.line_records import join_lines

_METADATA_TYPES: dict[str, ColumnType] = {
    "_topic": StringColumn(),
    "_partition": IntegerColumn(32),
    "_offset": IntegerColumn(64),
    "_timestamp": TimestampColumn(with_zone=True),
    "_headers": ArrayColumn(
        StructColumn(
            (
                StructColumnField("key", StringColumn()),
                StructColumnField("value", BinaryColumn()),
            )
        )
    ),
    "_deleted": BooleanColumn(),
}


def row_lines(
    reading: TypedReading, tp: TopicPartition, rows: TypedRows, most: int | None
) -> tuple[bytes, int]:
    """The lines of the first `most` rows (None: of all), and how many they are."""
    batch = reading.batch_of(tp, rows)
    if most is not None:
        batch = batch.slice(0, most)
    if not batch.num_rows:
        return b"", 0
    types = {column.name: column.type for column in reading.plan.columns} | _METADATA_TYPES
    names = batch.schema.names
    texts = [json_texts(batch.column(n), types[name]) for n, name in enumerate(names)]
    return join_lines(json_objects(names, texts).cast(pa.binary())), batch.num_rows
