"""Turns an Arrow table into batches by partition.

Columns are handled as a whole, without Python per row. Rows of one partition keep their order. The
columns are `value` and, optionally, `key`, `headers`, `timestamp` (Arrow timestamp, or int64
milliseconds) and `partition`; their names are case-insensitive. The partition is that of the column
`partition`, else the murmur2 of the key, else runs of rows go to the partitions by turns. Source:
R-CLI1, R-CLI7.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from storage_engine.client.producer.partitioner import partitions_for_keys
from storage_engine.client.producer.producer_errors import SerializationError
from storage_engine.protocol.records.records import EncodedBatch, iter_encoded

TABLE_BATCH_BYTES = 256 << 10
"""Batches of a table have up to this, or `batch.size` where that is more: their rows are there, so
nothing waits for a large batch to fill, and small ones cost as much time as large ones."""

SLICE_ROWS = 131_072
"""Rows that are sorted and encoded together: the first batches are under way while the rest is
made, and columns stay near the CPU."""

LONG_RUN_ROWS = 500
"""Rows of one partition behind one another, on average, that are not sorted."""

COLUMNS = ("value", "key", "headers", "timestamp", "partition")

_OPEN = -1


def table_batches(
    table: "pa.Table | pa.RecordBatch",
    partition_count: int,
    *,
    batch_bytes: int,
    compression: str,
    first_partition: int,
    now_ms: int,
) -> Iterator[tuple[int, EncodedBatch]]:
    """(partition, batch) of all rows. `first_partition` is where rows without key and partition
    begin. SerializationError for a column that can't be sent."""
    columns = _columns(table)
    turn = first_partition
    for start in range(0, table.num_rows, SLICE_ROWS):
        part = {name: _flat(each.slice(start, SLICE_ROWS)) for name, each in columns.items()}
        chosen, turn = _chosen(part, partition_count, turn, batch_bytes)
        for partition, rows in chosen:
            picked = {name: _picked(column, rows) for name, column in part.items()}
            for batch in iter_encoded(
                picked["value"],
                picked.get("key"),
                picked.get("headers"),
                picked.get("timestamp"),
                compression=compression,
                batch_bytes=batch_bytes,
                now_ms=now_ms,
            ):
                yield partition, batch


def _columns(table: "pa.Table | pa.RecordBatch") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for position, name in enumerate(table.schema.names):
        lowered = name.lower()
        if lowered not in COLUMNS or lowered in found:
            raise SerializationError(
                f"the table's column '{name}' is not one of {', '.join(COLUMNS)}, each once; "
                "rename it, or leave it out"
            )
        found[lowered] = table.column(position)
    if "value" not in found:
        raise SerializationError(
            "the table has no column 'value'; rename the column that holds the values to 'value'"
        )
    for name in ("key", "value"):
        if name in found and pa.types.is_null(found[name].type):
            found[name] = found[name].cast(pa.binary())
        kind = found[name].type if name in found else pa.binary()
        if not (_is_bytes(kind) or _is_text(kind)):
            raise SerializationError(
                f"the table's column '{name}' is {kind}; it must be binary or string"
            )
    if "partition" in found and not pa.types.is_integer(found["partition"].type):
        kind = found["partition"].type
        raise SerializationError(f"the table's column 'partition' is {kind}; it must be an integer")
    return found


def _is_bytes(kind: Any) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _flat(column: Any) -> Any:
    """The column as one array."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if _is_bytes(column.type) or _is_text(column.type):
        return column.cast(pa.binary())
    return column


def _chosen(
    columns: dict[str, Any], count: int, turn: int, batch_bytes: int
) -> tuple[Iterable[tuple[int, Any]], int]:
    """Partitions with their rows, and where the next rows without key go."""
    if "key" in columns or "partition" in columns:
        partitions, turn = _partitions(columns, count, turn, batch_bytes)
        return _by_partition(partitions), turn
    values = columns["value"]
    run = _run_rows(values, len(values), count, batch_bytes)
    starts = range(0, len(values), run)
    runs = [
        ((turn + n) % count, slice(at, min(at + run, len(values)))) for n, at in enumerate(starts)
    ]
    return runs, turn + len(runs)


def _run_rows(values: Any, rows: int, count: int, batch_bytes: int) -> int:
    """The number of `rows` rows without key that go to one partition before the next: those of a
    batch, or more, because batches that are encoded together cost less."""
    a_batch = batch_bytes * len(values) // max(1, int(values.nbytes) + 10 * len(values))
    return max(1, a_batch, -(-rows // count))


def _partitions(
    columns: dict[str, Any], count: int, turn: int, batch_bytes: int
) -> tuple[Any, int]:
    """The partition of each row, and the partition for the next rows without key."""
    values = columns["value"]
    rows = len(values)
    partitions = np.full(rows, _OPEN, np.int32)
    given = columns.get("partition")
    if given is not None and given.null_count < rows:
        there = np.asarray(given.is_valid())
        named = given.cast(pa.int64()).fill_null(0).to_numpy()
        wrong = there & ((named < 0) | (named >= count))
        if wrong.any():
            raise SerializationError(
                f"the table's column 'partition' names partition {named[wrong][0]}; the topic has "
                f"partitions 0 to {count - 1}"
            )
        partitions[there] = named[there]
    keys = columns.get("key")
    if keys is not None and keys.null_count < rows:
        by_key = partitions_for_keys(keys, count, null_partition=_OPEN)
        partitions = np.where(partitions == _OPEN, by_key, partitions)
    left = np.flatnonzero(partitions == _OPEN)
    if len(left):
        runs = np.arange(len(left)) // _run_rows(values, len(left), count, batch_bytes)
        partitions[left] = (turn + runs) % count
        turn += int(runs[-1]) + 1
    return partitions, turn


def _picked(column: Any, rows: Any) -> Any:
    if isinstance(rows, slice):
        return column.slice(rows.start, rows.stop - rows.start)
    return column.take(rows)


def _by_partition(partitions: Any) -> Iterator[tuple[int, Any]]:
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
