"""Rows of a typed topic, of which a broker sent only some columns, as records whose values are JSON
objects of these columns.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.fetching.typed_reading import METADATA_COLUMNS, TypedReading
from storage_engine.protocol.records.record_decoder import DecodedRecords
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.typed.arrays.json_text import json_objects, json_texts


def typed_records(
    reading: TypedReading, fetched: FetchedBatches, end_offset: int | None
) -> Iterator[DecodedRecords]:
    """Yield the fetched rows as records. Raise the reading's error if the schema has changed since:
    the next search reads it anew."""
    error = reading.outdated_by(fetched)
    if error is not None:
        raise error
    for rows in reading.rows(fetched, end_offset=end_offset):
        batch = reading.batch_of(fetched.tp, rows)
        if batch.num_rows:
            yield _as_records(reading, batch)


def _as_records(reading: TypedReading, batch: pa.RecordBatch) -> DecodedRecords:
    types = {column.name: column.type for column in reading.plan.columns}
    names = [name for name in batch.schema.names if name not in METADATA_COLUMNS]
    count = batch.num_rows
    values: pa.Array
    if names:
        texts = [json_texts(batch.column(name), types[name]) for name in names]
        values = json_objects(names, texts).cast(pa.binary())
    else:
        values = pa.array([b"{}"] * count, pa.binary())
    times_ms = pc.divide(batch.column("_timestamp").cast(pa.int64()), 1000)
    return DecodedRecords(
        keys=pa.nulls(count, pa.binary()),
        values=values,
        offsets=batch.column("_offset"),
        timestamps_ms=times_ms,
        timestamp_types=pa.array([0] * count, pa.int32()),
        headers=batch.column("_headers").cast(HEADERS_TYPE),
    )
