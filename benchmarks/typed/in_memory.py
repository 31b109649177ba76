"""A Spark source that yields record batches which it already has, with the columns that are read:
the ceiling for any source in Python.

Rule: no work per batch. Each process makes a few batches once and yields them over and over.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.typed.columns import PIECE_ROWS, make_rows

FORMAT = "headrace_bench_typed"

_DISTINCT_BATCHES = 4
"""More than the processor's caches hold, so that a batch is not read from there every time."""


class TypedInMemoryFormat(DataSource):
    """Options: `rows` of all tasks together, `tasks`. The schema is given to the reader."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        """`spark.read`."""
        return _Reader(self.options, schema.names)


class _Reader(DataSourceReader):
    def __init__(self, options: Any, names: Sequence[str]) -> None:
        self._rows, self._tasks = int(options["rows"]), int(options["tasks"])
        self._names = tuple(names)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self._rows // self._tasks) for _ in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batches = _batches(self._names)
        for place in range(0, partition.value, PIECE_ROWS):
            batch = batches[(place // PIECE_ROWS) % len(batches)]
            yield batch.slice(0, min(PIECE_ROWS, partition.value - place))


@lru_cache(maxsize=2)
def _batches(names: tuple[str, ...]) -> list[pa.RecordBatch]:
    firsts = (number * PIECE_ROWS for number in range(_DISTINCT_BATCHES))
    return [make_rows(first, PIECE_ROWS, names) for first in firsts]
