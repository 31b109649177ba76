"""Records as Arrow tables, with the columns that Spark's sources have."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.records import HEADERS_TYPE, DecodedRecords

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)


def table_of(parts: Iterable[tuple[TopicPartition, DecodedRecords, int]]) -> pa.Table:
    """The parts one after the other, each without so many of its first rows."""
    batches = [batch_of(tp, records).slice(first) for tp, records, first in parts]
    return pa.Table.from_batches(batches, SCHEMA)


def batch_of(tp: TopicPartition, records: DecodedRecords) -> pa.RecordBatch:
    """Decoded with their headers."""
    count = len(records)
    columns = [
        pa.repeat(pa.scalar(tp.topic, pa.string()), count),
        pa.array(np.full(count, tp.partition, np.int32)),
        records.offsets,
        records.timestamps,
        records.timestamp_types,
        records.keys,
        records.values,
        records.headers,
    ]
    return pa.record_batch(columns, schema=SCHEMA)
