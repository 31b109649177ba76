"""Divides the rows of a table among the partitions of a topic.

The partition of a row is the one that the table names, else that of its key, else runs of rows go
to the partitions by turns. Rows of one partition keep their order. Source: R-CLI1, R-CLI7.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_engine.client.producer.partition_choice import KeyPartitioner
from storage_engine.client.producer.producer_errors import SerializationError

SLICE_ROWS = 131_072
"""Rows that are sorted and encoded together: the first batches are under way while the rest is
made, and columns stay near the CPU."""

LONG_RUN_ROWS = 500
"""Rows of one partition behind one another, on average, that are not sorted."""

_OPEN = -1

Rows: TypeAlias = "slice | pa.Array"
"""A part of a table: rows behind one another, or indices that ascend."""


def rows_by_partition(
    rows: int,
    partition_count: int,
    *,
    named: pa.Array | None,
    keys: pa.Array | None,
    partitioner: KeyPartitioner,
    turn: int,
    batch_rows: int,
    named_column: str = "partition",
) -> tuple[Iterable[tuple[int, Rows]], int]:
    """Return partitions with their rows, and the `turn` for the next table. `named`, `keys`: the
    columns of partitions and of keys, None where the table has none. `turn`: the partition that the
    first row with neither goes to. `batch_rows`: the number of rows in a batch, about."""
    if named is None and keys is None:
        run = _run_rows(rows, partition_count, batch_rows)
        runs = [
            ((turn + n) % partition_count, slice(at, min(at + run, rows)))
            for n, at in enumerate(range(0, rows, run))
        ]
        return runs, turn + len(runs)
    partitions = np.full(rows, _OPEN, np.int32)
    if named is not None and named.null_count < rows:
        _take_named(partitions, named, partition_count, named_column)
    if keys is not None and not (partitioner.spreads_null and keys.null_count == rows):
        by_key = partitioner.partitions_of(keys, partition_count, spread=_OPEN)
        partitions = np.where(partitions == _OPEN, by_key, partitions)
    left = np.flatnonzero(partitions == _OPEN)
    if len(left):
        turns = np.arange(len(left)) // _run_rows(len(left), partition_count, batch_rows)
        partitions[left] = (turn + turns) % partition_count
        turn += int(turns[-1]) + 1
    return _by_partition(partitions), turn


def _run_rows(rows: int, partition_count: int, batch_rows: int) -> int:
    """Return how many rows without a key go to one partition before the next partition has its
    turn: a batch of them, or more, because batches that are encoded together cost less."""
    return max(1, batch_rows, -(-rows // partition_count))


def _take_named(
    partitions: npt.NDArray[np.int32], named: pa.Array, partition_count: int, column: str
) -> None:
    there = np.asarray(named.is_valid())
    numbers = named.cast(pa.int64()).fill_null(0).to_numpy()
    wrong = there & ((numbers < 0) | (numbers >= partition_count))
    if wrong.any():
        raise SerializationError(
            f"the table's column '{column}' names partition {numbers[wrong][0]}; the topic has "
            f"partitions 0 to {partition_count - 1}"
        )
    partitions[there] = numbers[there]


def picked(column: "pa.Array | pa.RecordBatch", rows: Rows) -> "pa.Array | pa.RecordBatch":
    """The rows of a column, or of a record batch, that `rows_by_partition` gave."""
    if isinstance(rows, slice):
        return column.slice(rows.start, rows.stop - rows.start)
    return column.take(rows)


def _by_partition(partitions: npt.NDArray[np.int32]) -> Iterator[tuple[int, Rows]]:
    """Partitions with the indices of their rows, ascending: long runs as slices, which copy nothing
    (a partition may come several times then), else each partition once."""
    bounds = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    if len(bounds) - 1 <= max(1, len(partitions) // LONG_RUN_ROWS):
        for start, end in pairwise(bounds):
            yield int(partitions[start]), slice(start, end)
        return
    # numpy sorts 16-bit integers by radix, which is stable and linear.
    narrow = partitions.astype(np.uint16) if partitions.max() < 1 << 16 else partitions
    order = np.argsort(narrow, kind="stable")
    sorted_ = partitions[order]
    bounds = [0, *(np.flatnonzero(np.diff(sorted_)) + 1).tolist(), len(order)]
    for start, end in pairwise(bounds):
        yield int(sorted_[start]), pa.array(order[start:end])
