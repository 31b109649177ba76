"""Turns an Arrow table into batches by partition.

Columns are handled as a whole, without Python per row. Rows of one partition keep their order. The
columns are `value` and, optionally, `key`, `headers`, `timestamp` (Arrow timestamp, or int64
milliseconds) and `partition`; their names are case-insensitive. The partition is that of the column
`partition`, else the murmur2 of the key, else runs of rows go to the partitions by turns. Source:
R-CLI1, R-CLI7.
"""

from collections.abc import Iterator

import pyarrow as pa

from storage_engine.client.producer.partition_choice import KeyPartitioner
from storage_engine.client.producer.producer_errors import SerializationError
from storage_engine.client.producer.tables.plain_arrays import plain, plain_type
from storage_engine.client.producer.tables.row_partitions import (
    SLICE_ROWS,
    picked,
    rows_by_partition,
)
from storage_engine.protocol.records.record_encoder import EncodedBatch, iter_encoded

TABLE_BATCH_BYTES = 256 << 10
"""Batches of a table have up to this, or `batch.size` where that is more: their rows are there, so
nothing waits for a large batch to fill, and small ones cost as much time as large ones."""

COLUMNS = ("value", "key", "headers", "timestamp", "partition")


def table_batches(
    table: "pa.Table | pa.RecordBatch",
    partition_count: int,
    *,
    batch_bytes: int,
    compression: str,
    partitioner: KeyPartitioner,
    first_partition: int,
    now_ms: int,
) -> Iterator[tuple[int, EncodedBatch]]:
    """(partition, batch) of all rows. `first_partition` is where rows without key and partition
    begin. SerializationError for a column that can't be sent."""
    columns = _columns(table)
    turn = first_partition
    for start in range(0, table.num_rows, SLICE_ROWS):
        part = {name: _flat(each.slice(start, SLICE_ROWS)) for name, each in columns.items()}
        values = part["value"]
        chosen, turn = rows_by_partition(
            len(values),
            partition_count,
            named=part.get("partition"),
            keys=part.get("key"),
            partitioner=partitioner,
            turn=turn,
            batch_rows=_batch_rows(values, batch_bytes),
        )
        for partition, rows in chosen:
            taken = {name: picked(column, rows) for name, column in part.items()}
            for batch in iter_encoded(
                taken["value"],
                taken.get("key"),
                taken.get("headers"),
                taken.get("timestamp"),
                compression=compression,
                batch_bytes=batch_bytes,
                now_ms=now_ms,
            ):
                yield partition, batch


def _columns(table: "pa.Table | pa.RecordBatch") -> dict[str, "pa.Array | pa.ChunkedArray"]:
    found: dict[str, pa.Array | pa.ChunkedArray] = {}
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
        kind = plain_type(found[name].type) if name in found else pa.binary()
        if not (_is_bytes(kind) or _is_text(kind)):
            raise SerializationError(
                f"the table's column '{name}' is {found[name].type}; it must be binary or string"
            )
    if "partition" in found and not pa.types.is_integer(found["partition"].type):
        kind = found["partition"].type
        raise SerializationError(f"the table's column 'partition' is {kind}; it must be an integer")
    return found


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _flat(column: "pa.Array | pa.ChunkedArray") -> pa.Array:
    """The column as one array."""
    if isinstance(column, pa.ChunkedArray):
        chunks = [plain(each) for each in column.chunks]
        column = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    else:
        column = plain(column)
    if _is_bytes(column.type) or _is_text(column.type):
        return column.cast(pa.binary())
    return column


def _batch_rows(values: pa.Array, batch_bytes: int) -> int:
    """Return about how many of the rows fit a batch."""
    return batch_bytes * len(values) // max(1, int(values.nbytes) + 10 * len(values))
