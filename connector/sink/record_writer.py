"""Writes the rows of one task, and returns only after every record was acknowledged.

By itself this is at least once: a task that Spark runs again writes its rows again. For exactly
once `task_attempt` passes a transaction. Within one attempt a repeated request duplicates nothing,
because the producer is idempotent (with acks=all). Source: R-SPARK1, R-CLI1, R-CLI7.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from connector.connections import cluster_for
from connector.errors import in_one_line
from connector.options.sink_options import SinkOptions
from connector.sink.null_check import NullCheck
from connector.sink.row_routing import PartitionRows, Route, RoutedRows, Router
from connector.sink.topic_limits import UNCHECKED_BYTES, assumed, check_size, max_message_bytes
from connector.topic_schemas import TypedSink
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.client.producer.produce_queue import OpenTransaction
from storage_engine.protocol.records.record_encoder import EncodedBatch, iter_encoded

if TYPE_CHECKING:
    from connector.sink.avro.avro_rows import AvroEncoder
    from connector.sink.columns_sink import ColumnsSink
    from connector.sink.typed.typed_rows import TypedEncoder

GATHER_ROWS = 50_000
GATHER_BYTES = 8 * 1024 * 1024
"""Rows are routed together up to either limit. Spark passes 10,000 rows at a time; spread over a
few partitions they make small record batches, which cost as much time as large ones."""


@dataclass(frozen=True, kw_only=True)
class WrittenRows(WriterCommitMessage):
    """The number of rows that an at-least-once task has written; the brokers have acknowledged
    all."""

    rows: int
    batches: int


def write_records(
    options: SinkOptions, pieces: Iterable[pa.RecordBatch], typed: "ColumnsSink | None" = None
) -> WrittenRows:
    """Writes rows at least once. ConnectorError for a row that can't be written, or when the
    delivery timeout has passed. `typed`: what their columns are written as; None: they are
    records."""
    gathered = gather(pieces)
    first = next(gathered, None)
    if first is None:
        return WrittenRows(rows=0, batches=0)
    with in_one_line():
        rows = checked(options, typed, itertools.chain((first,), gathered))
        return write_gathered(options, cluster_for(options.connection), rows, typed=typed)


def write_gathered(
    options: SinkOptions,
    cluster: Cluster,
    pieces: Iterable[pa.RecordBatch],
    *,
    transaction: OpenTransaction | None = None,
    typed: "ColumnsSink | None" = None,
) -> WrittenRows:
    """Writes what `gather` yields, and raises the client's errors. After an error the caller may go
    on with `pieces`, unless they are a generator, which the error closes."""
    encoder = _encoder(options, cluster, typed)
    rows = batches = 0
    with BatchWriter(
        cluster,
        acks=options.acks,
        transaction=transaction,
        delivery_timeout_ms=options.delivery_timeout_ms,
    ) as writer:
        for piece in pieces:
            routed = encoder.route(piece)
            writer.announce(each.topic_partition for each in routed)
            for each in routed:
                for encoded in each.batches:
                    writer.append(each.topic_partition, encoded)
                    batches += 1
            rows += piece.num_rows
        writer.flush()
    return WrittenRows(rows=rows, batches=batches)


def checked(
    options: SinkOptions, typed: "ColumnsSink | None", pieces: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """`pieces`, which have the columns of their origin yet; RowError for a null where a schema
    allows none. It is no generator, so a failing write leaves it usable."""
    if typed is None:
        return pieces
    required = [each.name for each in typed.required]
    return map(NullCheck(typed.topic, required, options).checked, pieces)


def gather(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of `pieces` in Arrow record batches of at least GATHER_ROWS or GATHER_BYTES, except
    the last and those before a large piece, which is passed as it is: joined with others it would
    be copied, and could be more than the 2 GiB of one Arrow array."""
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for piece in pieces:
        if piece.num_rows == 0:
            continue
        size = piece.nbytes
        if held and size >= GATHER_BYTES:
            yield _joined(held)
            held, held_rows, held_bytes = [], 0, 0
        held.append(piece)
        held_rows += piece.num_rows
        held_bytes += size
        if held_rows >= GATHER_ROWS or held_bytes >= GATHER_BYTES:
            yield _joined(held)
            held, held_rows, held_bytes = [], 0, 0
    if held:
        yield _joined(held)


def _joined(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(held) == 1:
        return held[0]
    (joined,) = pa.Table.from_batches(held).combine_chunks().to_batches()
    return joined


def _encoder(
    options: SinkOptions, cluster: Cluster, typed: "ColumnsSink | None"
) -> "RecordEncoder | TypedEncoder | AvroEncoder":
    if typed is None:
        return RecordEncoder(options, cluster)
    if isinstance(typed, TypedSink):
        from connector.sink.typed.typed_rows import TypedEncoder

        return TypedEncoder(typed, options, cluster)
    from connector.sink.avro.avro_rows import AvroEncoder

    return AvroEncoder(typed, RecordEncoder(options, cluster).route)


class RecordEncoder:
    """Makes record batches of rows with the columns of a record."""

    def __init__(self, options: SinkOptions, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster
        self._router = Router(topic=options.topic, partition_count=self._partition_count)

    def route(self, rows: pa.RecordBatch) -> list[RoutedRows]:
        """The record batches of `rows` for each partition that gets any row."""
        return [
            RoutedRows(each.topic_partition, self._encoded(each))
            for each in self._router.route(rows)
        ]

    def _encoded(self, route: Route) -> Iterator[EncodedBatch]:
        group, options = route.rows(), self._options
        batch_bytes, tp = options.batch_bytes, route.topic_partition
        is_checked = _payload_bytes(group) > UNCHECKED_BYTES
        if is_checked:
            largest = max_message_bytes(self._cluster, tp.topic)
            batch_bytes = min(batch_bytes, assumed(largest))
        for encoded in iter_encoded(
            group.values,
            group.keys,
            group.headers,
            compression=options.compression,
            batch_bytes=batch_bytes,
        ):
            if is_checked:
                check_size(self._cluster, tp, len(encoded), "record", "record")
            yield encoded

    def _partition_count(self, topic: str) -> int:
        metadata = self._cluster.metadata(
            [topic], max_age_ms=self._options.connection.metadata_max_age_ms
        )
        return len((metadata.topics.get(topic) or self._cluster.topic(topic)).partitions)


def _payload_bytes(group: PartitionRows) -> int:
    columns = (group.values, group.keys, group.headers)
    return sum(column.nbytes for column in columns if column is not None)
