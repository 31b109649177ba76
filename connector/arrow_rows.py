"""Decoded records -> the record batches that Spark takes. Its one rule: whole columns, never a row.

Source: FACTS.md: batches of 10 to 50 thousand rows, the Arrow schema exactly Spark's.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from connector.schema import headers_arrow_type, source_arrow_schema
from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    from storage_engine.protocol.records import DecodedRecords

MAX_BATCH_ROWS = 50_000
"""Of one record batch: Spark does not cut what it is given, and larger ones gain nothing."""


def record_batches(
    decoded: "DecodedRecords", topic_partition: TopicPartition, *, include_headers: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of one partition, at most MAX_BATCH_ROWS a batch."""
    schema = source_arrow_schema(include_headers=include_headers)
    count = len(decoded.offsets)
    columns = [
        decoded.keys,
        decoded.values,
        None,
        None,
        decoded.offsets,
        decoded.timestamps,
        decoded.timestamp_types,
    ]
    if include_headers:
        columns.append(_spark_headers(decoded.headers))
    for start in range(0, count, MAX_BATCH_ROWS):
        rows = min(MAX_BATCH_ROWS, count - start)
        piece = [None if column is None else column.slice(start, rows) for column in columns]
        piece[2] = _repeated_topic(topic_partition.topic).slice(0, rows)
        piece[3] = _repeated_partition(topic_partition.partition).slice(0, rows)
        yield pa.RecordBatch.from_arrays(piece, schema=schema)


def _spark_headers(headers: pa.Array) -> pa.Array:
    """The same with Spark's name for the entry of a list; no copy."""
    return headers.cast(headers_arrow_type())


@lru_cache(maxsize=64)
def _repeated_topic(topic: str) -> pa.Array:
    return pa.repeat(pa.scalar(topic, pa.string()), MAX_BATCH_ROWS)


@lru_cache(maxsize=64)
def _repeated_partition(partition: int) -> pa.Array:
    return pa.repeat(pa.scalar(partition, pa.int32()), MAX_BATCH_ROWS)
