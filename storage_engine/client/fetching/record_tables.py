"""Records as Arrow tables, with the columns that Spark's sources have."""

import numpy as np
import pyarrow as pa

from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import DecodedRecords
from storage_engine.protocol.records.record_headers import HEADERS_TYPE

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


def batch_of(tp: TopicPartition, records: DecodedRecords) -> pa.RecordBatch:
    """Return a batch of `records`, which were decoded with their headers."""
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
