"""Makes the Arrow record batches that Spark takes of decoded records, by whole columns, never by
row.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from connector.schema import headers_arrow_type, source_arrow_schema
from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    from storage_engine.protocol.records.records import DecodedRecords

MAX_BATCH_ROWS = 50_000
"""The most rows of one record batch. Spark does not split what it gets, and larger ones gain
nothing."""


def arrow_batches(
    decoded: "DecodedRecords", topic_partition: TopicPartition, *, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The records of one partition as rows, at most MAX_BATCH_ROWS in a record batch. `columns` are
    as in `schema.py`; other columns are not touched."""
    schema = source_arrow_schema(columns)
    whole = [_column(decoded, name) for name in columns]
    for start in range(0, len(decoded), MAX_BATCH_ROWS):
        rows = min(MAX_BATCH_ROWS, len(decoded) - start)
        arrays = [
            _repeated(name, topic_partition).slice(0, rows)
            if column is None
            else column.slice(start, rows)
            for name, column in zip(columns, whole, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(decoded: "DecodedRecords", name: str) -> pa.Array | None:
    """Returns None for a column that has one value in all rows of a partition."""
    match name:
        case "key":
            return decoded.keys
        case "value":
            return decoded.values
        case "offset":
            return decoded.offsets
        case "timestamp":
            return decoded.timestamps
        case "timestampType":
            return decoded.timestamp_types
        case "headers":
            return _spark_headers(decoded.headers)
    return None


def _repeated(name: str, topic_partition: TopicPartition) -> pa.Array:
    if name == "topic":
        return _repeated_topic(topic_partition.topic)
    return _repeated_partition(topic_partition.partition)


def _spark_headers(headers: pa.Array) -> pa.Array:
    """The headers with Spark's name for the element of a list, without a copy."""
    return headers.cast(headers_arrow_type())


# Not by `pa.scalar`: it imports pandas, where that is installed, and the first read of each of
# Spark's Python workers would wait half a second.


@lru_cache(maxsize=64)
def _repeated_topic(topic: str) -> pa.Array:
    text = topic.encode()
    bounds = pa.py_buffer(struct.pack("=2i", 0, len(text)))
    one = pa.Array.from_buffers(pa.string(), 1, [None, bounds, pa.py_buffer(text)])
    return pa.repeat(one[0], MAX_BATCH_ROWS)


@lru_cache(maxsize=64)
def _repeated_partition(partition: int) -> pa.Array:
    number = pa.py_buffer(struct.pack("=i", partition))
    one = pa.Array.from_buffers(pa.int32(), 1, [None, number])
    return pa.repeat(one[0], MAX_BATCH_ROWS)
