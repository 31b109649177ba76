"""Turns the rows of a typed topic into batches by partition, column by column.

The partition of a row is in the column `_partition`, else the murmur2 of the text of its key's
columns (as a client of Kafka's would send that text), else runs of rows go to the partitions by
turns. Stored batches come close to the size that is wanted: how far columns shrink is learned from
the batches before. Source: R-CLI1, R-CLI7.
"""

from collections.abc import Iterator

import pyarrow as pa

from storage_engine.client.producer.partition_choice import KeyPartitioner
from storage_engine.client.producer.producer_errors import SerializationError
from storage_engine.client.producer.tables.row_partitions import (
    SLICE_ROWS,
    Rows,
    picked,
    rows_by_partition,
)
from storage_engine.client.producer.tables.typed_rows import (
    DELETED,
    HEADERS,
    PARTITION,
    SPECIAL_COLUMNS,
    TIMESTAMP,
)
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.protocol.records.compression import codec_named
from storage_engine.protocol.records.record_batch import Codec
from storage_engine.protocol.records.record_encoder import EncodedBatch
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.protocol.typed.typed_encoder import iter_typed
from storage_engine.protocol.typed.typed_keys import key_bytes

STORED_BATCH_BYTES = 900 << 10
"""The size of stored batches, or the topic's limit where that is less: the larger a batch, the
less its directory, and the work for each of its columns, costs a row."""

_MOST_RAW_BYTES = 8 << 20
"""The most bytes of a batch before compression."""

_ROOM = 0.9
"""The target for a batch as a part of its limit, since the next rows may shrink less."""

_PARTITION_ROWS = 16_384
"""About as many rows of a slice go to each partition."""

_MOST_SLICE_ROWS = 1 << 21


def typed_codec(compression: str, topic: str) -> Codec:
    """Return the codec; SerializationError for a codec that columns can't have."""
    codec = codec_named(compression)
    if codec not in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        raise SerializationError(
            f"the columns of topic '{topic}' can't be compressed by {compression}: set "
            "compression.type to lz4, zstd or none"
        )
    return codec


def typed_batches(
    table: pa.Table,
    known: KnownSchema,
    partition_count: int,
    *,
    batch_bytes: int,
    compression: Codec,
    partitioner: KeyPartitioner,
    first_partition: int,
    now_ms: int,
) -> Iterator[tuple[int, EncodedBatch]]:
    """Yield (partition, batch) of all rows of a `fitted` table. `batch_bytes`: of a stored batch,
    which is larger only where a single row is. SerializationError for a row that does not fit."""
    schema = known.schema
    encoder = _Encoder(known, batch_bytes, compression, now_ms)
    turn = first_partition
    slice_rows = min(max(SLICE_ROWS, _PARTITION_ROWS * partition_count), _MOST_SLICE_ROWS)
    for start in range(0, table.num_rows, slice_rows):
        columns = map(_flat, table.slice(start, slice_rows).columns)
        part = pa.record_batch(list(columns), schema=table.schema)
        keys = key_bytes(part, schema, schema.latest) if schema.key else None
        chosen, turn = rows_by_partition(
            part.num_rows,
            partition_count,
            named=_named(part, PARTITION),
            keys=keys,
            partitioner=partitioner,
            turn=turn,
            batch_rows=encoder.rows_of_batch(part),
            named_column=PARTITION,
        )
        for partition, rows in chosen:
            try:
                for batch in encoder.encoded(picked(part, rows)):
                    yield partition, batch
            except RowsDoNotFitError as error:
                raise _in_table(error, start, rows) from None


def _named(part: pa.RecordBatch, name: str) -> pa.Array | None:
    return part.column(name) if name in part.schema.names else None


def _flat(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        # More than 2 GiB of text: the rows are no fewer than a partition's share of a slice.
        raise SerializationError(
            f"{len(column)} rows of a table have more than 2 GiB in one column: send it in parts"
        )
    return combined


class _Encoder:
    """Encodes rows of one partition after the other, and learns how far columns shrink."""

    def __init__(
        self, known: KnownSchema, stored_bytes: int, compression: Codec, now_ms: int
    ) -> None:
        self._known = known
        self._stored_bytes = stored_bytes
        self._raw_bytes = stored_bytes
        self._compression = compression
        self._now_ms = now_ms

    def rows_of_batch(self, rows: pa.RecordBatch) -> int:
        """Return about how many of the rows fit a batch."""
        return int(self._raw_bytes * rows.num_rows // max(1, rows.nbytes))

    def encoded(self, part: pa.RecordBatch) -> Iterator[EncodedBatch]:
        """Yield all rows, in batches. RowsDoNotFitError."""
        count = part.num_rows
        start = 0
        while start < count:
            raw_bytes = self._raw_bytes
            for batch in self._batches(part.slice(start)):
                is_last = start + batch.record_count == count
                is_too_large = len(batch) > self._stored_bytes and batch.record_count > 1
                if is_too_large or not is_last:
                    self._learn(len(batch), is_too_large=is_too_large)
                if is_too_large:
                    break
                start += batch.record_count
                yield batch
                if self._raw_bytes >= 2 * raw_bytes:
                    # Batches can be so much larger that it pays to divide the remaining rows anew.
                    break

    def _batches(self, part: pa.RecordBatch) -> Iterator[EncodedBatch]:
        schema = self._known.schema
        return iter_typed(
            part.select([name for name in part.schema.names if name not in SPECIAL_COLUMNS]),
            schema,
            schema.latest,
            self._known.topic_id,
            timestamps=_named(part, TIMESTAMP),
            headers=_named(part, HEADERS),
            tombstones=_named(part, DELETED),
            compression=self._compression,
            batch_bytes=self._raw_bytes,
            now_ms=self._now_ms,
        )

    def _learn(self, stored_bytes: int, *, is_too_large: bool) -> None:
        """Adapt `_raw_bytes`, since about as many were stored as `stored_bytes`."""
        raw = int(self._raw_bytes * self._stored_bytes / stored_bytes * _ROOM)
        if is_too_large:
            self._raw_bytes = max(1, min(raw, self._raw_bytes - 1))
        else:
            self._raw_bytes = max(self._raw_bytes, min(raw, _MOST_RAW_BYTES))


def _in_table(error: RowsDoNotFitError, start: int, rows: Rows) -> SerializationError:
    """Return the error with the row's number in the table."""
    if error.row < 0:
        return SerializationError(str(error))
    row = rows.start + error.row if isinstance(rows, slice) else rows[error.row].as_py()
    text = str(error).removeprefix(f"row {error.row} ")
    return SerializationError(f"row {start + row} of the table {text}")
