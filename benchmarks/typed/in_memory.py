"""Spark formats without a broker: one makes the rows for topics; the other yields record batches
that it already has, with the requested columns, and holds the batches that it gets: the ceilings
for any source and sink in Python.

Rule: the second has no work per batch. Each process makes a few batches once and yields them over
and over.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from benchmarks.typed.columns import PIECE_ROWS, ddl, made_of, make_rows

MADE, IN_MEMORY = "headrace_bench_rows", "headrace_bench_typed"
"""The names of the formats."""

_DISTINCT_BATCHES = 4
"""More than the processor's caches hold, so that a batch is not read from there every time."""


class RowsFormat(DataSource):
    """The rows from id 0 on, a stretch of them in each task. Options: `rows`, `tasks`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return MADE

    def schema(self) -> str:
        """All columns."""
        return ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        """`spark.read`."""
        return _Maker(self.options)


class _Maker(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._rows, self._tasks = int(options["rows"]), int(options["tasks"])

    def partitions(self) -> Sequence[InputPartition]:
        bounds = [self._rows * number // self._tasks for number in range(self._tasks + 1)]
        return [InputPartition((first, end - first)) for first, end in pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return made_of(*partition.value)


class TypedInMemoryFormat(DataSource):
    """Options of the source: `rows` of all tasks together, `tasks`. Its schema is given to the
    reader."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return IN_MEMORY

    def reader(self, schema: StructType) -> DataSourceReader:
        """`spark.read`."""
        return _Reader(self.options, schema.names)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """`df.write`."""
        return _Writer()


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], names: Sequence[str]) -> None:
        self._rows, self._tasks = int(options["rows"]), int(options["tasks"])
        self._names = tuple(names)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self._rows // self._tasks) for _ in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batches = _batches(self._names)
        for place in range(0, partition.value, PIECE_ROWS):
            batch = batches[(place // PIECE_ROWS) % len(batches)]
            yield batch.slice(0, min(PIECE_ROWS, partition.value - place))


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        held = list(iterator)
        return _Written(sum(each.num_rows for each in held))


@dataclass(frozen=True)
class _Written(WriterCommitMessage):
    rows: int


@lru_cache(maxsize=2)
def _batches(names: tuple[str, ...]) -> list[pa.RecordBatch]:
    firsts = (number * PIECE_ROWS for number in range(_DISTINCT_BATCHES))
    return [make_rows(first, PIECE_ROWS, names) for first in firsts]
