"""Rows of a DataFrame on their way to a typed topic, in a task: conformed to the topic's types,
routed by its key, and encoded as typed batches. All work is done on whole columns.

Rows with the same key go where a Kafka client would send that key; a row's `_partition` comes
first, and rows without a key go to one partition after the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from connector.errors import ConnectorError, RowError
from connector.options.sink_options import SinkOptions
from connector.sink.row_routing import RoutedRows, Router, grouped
from connector.sink.topic_limits import UNCHECKED_BYTES, assumed, check_size, max_message_bytes
from connector.sink.typed.conforming import conformed
from connector.topic_schemas import TypedSink
from connector.typed_columns import PARTITION, TIMESTAMP
from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.arrow_kernels import milliseconds
from storage_engine.protocol.records.compression import codec_named
from storage_engine.protocol.records.record_encoder import EncodedBatch
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.protocol.typed.typed_encoder import iter_typed
from storage_engine.protocol.typed.typed_keys import key_bytes


@dataclass(frozen=True, slots=True)
class TypedRoute:
    """The rows that go to one partition, in their order."""

    topic_partition: TopicPartition
    rows: pa.RecordBatch
    timestamps: pa.Array | None

    def part(self, start: int, count: int) -> "TypedRoute":
        times = None if self.timestamps is None else self.timestamps.slice(start, count)
        return TypedRoute(self.topic_partition, self.rows.slice(start, count), times)


class TypedEncoder:
    """Makes typed batches of rows with the columns of the topic."""

    def __init__(self, sink: TypedSink, options: SinkOptions, cluster: Cluster) -> None:
        self._sink = sink
        self._options = options
        self._cluster = cluster
        self._version = sink.version
        self._router = Router(topic=sink.topic, partition_count=self._partition_count)
        self._codec = codec_named(options.compression)
        self._columns = {each.name.lower(): each for each in self._version.visible}

    def route(self, rows: pa.RecordBatch) -> list[RoutedRows]:
        """The typed batches of `rows` for each partition that gets any row. RowError for a value
        that the topic's type does not hold."""
        if not rows.num_rows:
            # All were dropped by their origin.
            return []
        partitions = timestamps = None
        names, arrays = [], []
        for field, given in zip(rows.schema, rows.columns, strict=True):
            name = field.name.lower()
            if name == PARTITION:
                partitions = given
            elif name == TIMESTAMP:
                # A null is the time of writing.
                timestamps = milliseconds(given)
            else:
                column = self._columns[name]
                names.append(column.name)
                arrays.append(conformed(given, column.type))
        count = rows.num_rows
        kept = pa.RecordBatch.from_arrays(arrays, names=names)
        schema = self._sink.schema
        keys = key_bytes(kept, schema, self._version) if schema.key else None
        destinations = self._router.destinations(
            self._sink.topic, keys, partitions, count, column=PARTITION
        )
        routes = [
            TypedRoute(
                TopicPartition(self._sink.topic, partition),
                kept if order is None else kept.take(order),
                timestamps if order is None or timestamps is None else timestamps.take(order),
            )
            for partition, order in grouped(destinations)
        ]
        return [RoutedRows(each.topic_partition, self._encoded(each)) for each in routes]

    def _encoded(self, route: TypedRoute) -> Iterator[EncodedBatch]:
        largest = None
        if route.rows.nbytes > UNCHECKED_BYTES:
            largest = max_message_bytes(self._cluster, route.topic_partition.topic)
        try:
            yield from self._batches(route, largest)
        except RowsDoNotFitError as error:
            raise RowError(
                "ROW_DOES_NOT_FIT", f"a row for {route.topic_partition}: {error}"
            ) from None

    def _batches(self, route: TypedRoute, largest: int | None) -> Iterator[EncodedBatch]:
        """Sizes are estimated: a batch that is above `largest` all the same is made anew as two."""
        most = assumed(largest)
        start = 0
        for batch in iter_typed(
            route.rows,
            self._sink.schema,
            self._version,
            self._sink.topic_id,
            timestamps=route.timestamps,
            compression=self._codec,
            batch_bytes=min(self._options.typed_batch_bytes, most),
        ):
            count = batch.record_count
            if len(batch) <= most:
                yield batch
            elif count == 1:
                check_size(self._cluster, route.topic_partition, len(batch), "row", "values")
                yield batch
            else:
                half = count // 2
                yield from self._batches(route.part(start, half), largest)
                yield from self._batches(route.part(start + half, count - half), largest)
            start += count

    def _partition_count(self, topic: str) -> int:
        found = self._cluster.metadata(
            [topic], max_age_ms=self._options.connection.metadata_max_age_ms
        ).topics.get(topic) or self._cluster.topic(topic)
        if found.topic_id != self._sink.topic_id:
            raise ConnectorError(
                "UNKNOWN_TOPIC_ID",
                f"the topic '{topic}' was deleted, and created again, since the write began: start "
                "it again",
            )
        return len(found.partitions)
