"""A Spark source of record batches that it already has, and a sink that keeps its batches: the
ceilings for any source and sink in Python.

The source has the columns, values, batch sizes and number of tasks of the one it is compared with,
and no work per batch. Each process builds a few batches once and yields them over and over. The
sink holds all record batches of a task until the task ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from benchmarks.support.random_values import random_values

FORMAT = "headrace_bench_in_memory"

_DISTINCT_BATCHES = 8
"""More than the processor caches hold, so that a batch is not read from there every time."""

_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)


class InMemoryFormat(DataSource):
    """Options of the source: records (per task), tasks, batchrows, valuebytes, rowspertrigger."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Kafka's columns."""
        return _DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """`spark.read`."""
        return _BatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """`spark.readStream`."""
        return _StreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """`df.write`."""
        return _BatchWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """`df.writeStream`."""
        return _StreamWriter()


class _Shape:
    """The shape of the rows, as the options give it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.records_per_task = int(options["records"])
        self.tasks = int(options["tasks"])
        self.batch_rows = int(options["batchrows"])
        self.value_bytes = int(options["valuebytes"])

    def read(self, records: int) -> Iterator[pa.RecordBatch]:
        batches = _batches(self.batch_rows, self.value_bytes)
        for place in range(0, records, self.batch_rows):
            batch = batches[(place // self.batch_rows) % len(batches)]
            yield batch.slice(0, min(self.batch_rows, records - place))


class _BatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._shape = _Shape(options)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self._shape.records_per_task) for _ in range(self._shape.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._shape.read(partition.value)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The offset is the number of records read of each task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._shape = _Shape(options)
        self._rows_per_trigger = int(options["rowspertrigger"])

    def initialOffset(self) -> dict[str, int]:
        return {"read": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._rows_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        step = self._rows_per_trigger // self._shape.tasks
        return {"read": min(self._shape.records_per_task, start["read"] + step)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["read"] - start["read"]) for _ in range(self._shape.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._shape.read(partition.value)


class _BatchWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _held(iterator)


class _StreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _held(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass


def _held(iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    held = list(iterator)
    return _Held(sum(each.num_rows for each in held))


@dataclass(frozen=True)
class _Held(WriterCommitMessage):
    rows: int


@lru_cache(maxsize=1)
def _batches(rows: int, value_bytes: int) -> list[pa.RecordBatch]:
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
        ]
    )
    return [
        pa.RecordBatch.from_arrays(
            [
                pa.nulls(rows, pa.binary()),
                random_values(rows, value_bytes, seed=seed),
                pa.repeat(pa.scalar("bench"), rows),
                pa.repeat(pa.scalar(0, pa.int32()), rows),
                pa.array(np.arange(rows, dtype=np.int64)),
                pa.repeat(pa.scalar(1_700_000_000_000_000, schema.field("timestamp").type), rows),
                pa.repeat(pa.scalar(0, pa.int32()), rows),
            ],
            schema=schema,
        )
        for seed in range(_DISTINCT_BATCHES)
    ]
