"""Makes the Arrow record batches that Spark takes of decoded records, by whole columns, never by
row.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connector.schema import headers_arrow_type, source_arrow_schema
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.arrow_kernels import take

if TYPE_CHECKING:
    from storage_engine.protocol.records.record_decoder import DecodedLogs, DecodedRecords

MAX_BATCH_ROWS = 50_000
"""The most rows of one record batch. Spark does not split record batches, and larger ones gain
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
            _repeated(name, topic_partition, rows) if column is None else column.slice(start, rows)
            for name, column in zip(columns, whole, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def arrow_batches_of_several(
    decoded: "DecodedLogs[TopicPartition]", *, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """`arrow_batches` of records of several partitions, which name the logs."""
    if len(decoded.rows) == 1:
        yield from arrow_batches(decoded.records, decoded.rows[0][0], columns=columns)
        return
    origins = {
        "topic": lambda: _topics(decoded.rows),
        "partition": lambda: _partitions(decoded.rows),
    }
    whole = [
        origins[name]() if name in origins else _column(decoded.records, name) for name in columns
    ]
    rows = pa.RecordBatch.from_arrays(whole, schema=source_arrow_schema(columns))
    for start in range(0, len(rows), MAX_BATCH_ROWS):
        yield rows.slice(start, MAX_BATCH_ROWS)


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


def _repeated(name: str, topic_partition: TopicPartition, rows: int) -> pa.Array:
    """The column `topic` or `partition` of so many rows of one partition."""
    if name == "topic":
        column = _repeated_topic(topic_partition.topic)
    else:
        column = _repeated_partition(topic_partition.partition)
    return column.slice(0, rows)


def _spark_headers(headers: pa.Array) -> pa.Array:
    """The headers with Spark's name for the element of a list, without a copy."""
    return headers.cast(headers_arrow_type())


# Not by `pa.scalar` or `pa.array`: they import pandas, where that is installed, and the first read
# of each of Spark's Python workers would wait half a second.


@lru_cache(maxsize=64)
def _repeated_topic(topic: str) -> pa.Array:
    return pa.repeat(_texts([topic])[0], MAX_BATCH_ROWS)


@lru_cache(maxsize=64)
def _repeated_partition(partition: int) -> pa.Array:
    return pa.repeat(_integers(np.array([partition], np.int32))[0], MAX_BATCH_ROWS)


def _topics(rows: Sequence[tuple[TopicPartition, int]]) -> pa.Array:
    """The topic of each row."""
    counts: dict[str, int] = {}
    for tp, count in rows:
        counts[tp.topic] = counts.get(tp.topic, 0) + count
    names = list(counts)
    if len(names) == 1 and counts[names[0]] <= MAX_BATCH_ROWS:
        return _repeated_topic(names[0]).slice(0, counts[names[0]])
    numbers = {name: number for number, name in enumerate(names)}
    numbered = _integers(_repeat([numbers[tp.topic] for tp, _ in rows], rows))
    return take(_texts(names), numbered)


def _partitions(rows: Sequence[tuple[TopicPartition, int]]) -> pa.Array:
    return _integers(_repeat([tp.partition for tp, _ in rows], rows))


def _repeat(
    numbers: Sequence[int], rows: Sequence[tuple[TopicPartition, int]]
) -> npt.NDArray[np.int32]:
    return np.repeat(np.array(numbers, np.int32), [count for _, count in rows])


def _texts(texts: Sequence[str]) -> pa.Array:
    encoded = [text.encode() for text in texts]
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def _integers(numbers: npt.NDArray[np.int32]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
