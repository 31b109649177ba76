"""Makes rows of fetched batches of typed topics, with the columns of the query, in its order.

When a batch has a schema version that is not known yet, the brokers are asked for the schema again.
Columns are found by their ids, so the rows keep the columns of the query.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from uuid import UUID

import pyarrow as pa

from connector.errors import ConnectorError
from connector.options.source_options import SourceOptions
from connector.schema import headers_arrow_type
from connector.source.arrow_batches import MAX_BATCH_ROWS
from connector.source.offset_range import OffsetRange
from connector.source.typed.typed_read import TypedRead, check_fits
from connector.topic_schemas import known_schemas
from connector.typed_columns import HEADERS, PARTITION, TOPIC
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.fetching.typed_reading import Selection, TypedReading
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.topic_schema import UnknownSchemaVersionError
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.projection import TypedWant
from storage_engine.protocol.typed.typed_decoder import (
    METADATA_TYPES,
    TypedRows,
    iter_typed_decoded,
)

SCHEMA_PATIENCE_S = 30.0
"""How long the brokers may not know the schema version of a batch. The broker that took the batch
knew it, and the others will."""

POLL_S = 0.1

JOINED_ROWS = 10_000
"""Pieces of shared tasks are joined up to this: each piece that goes to Spark has a cost of its
own."""

GROUP_BYTES = 12 << 20
"""The most that is held of fetches to be decoded together; the last of them comes on top."""


class TypedDecoding:
    """The columns of a query; see `RangeDecoding`."""

    def __init__(self, options: SourceOptions, read: TypedRead) -> None:
        self._options = options
        self._read = read
        self._readings: dict[str, TypedReading] = {}
        self._schema = arrow_schema(read)

    def wanted(self, ranges: Iterable[OffsetRange]) -> dict[str, TypedWant]:
        """See `RangeDecoding`. A topic that was not there when the query began is asked for its
        schema; planning has checked that it fits."""
        for each in ranges:
            topic = each.topic_partition.topic
            if topic not in self._readings:
                self._readings[topic] = self._planned(topic, each.topic_id)
        return {topic: each.want for topic, each in self._readings.items()}

    def together(
        self, fetches: Iterable[FetchedBatches], ends: Mapping[TopicPartition, int]
    ) -> Iterator[pa.RecordBatch]:
        """See `RangeDecoding`."""
        held: list[pa.RecordBatch] = []
        rows = 0
        for fetched in fetches:
            for each in self._decoded([fetched], fetched.start_offset, ends[fetched.tp]):
                piece = self._rows(each, fetched.tp)
                held.append(piece)
                rows += piece.num_rows
                if rows >= JOINED_ROWS:
                    yield _joined(held)
                    held, rows = [], 0
        if rows:
            yield _joined(held)

    def alone(
        self, fetches: Iterable[FetchedBatches], wanted: OffsetRange
    ) -> Iterator[tuple[Iterator[pa.RecordBatch], int]]:
        """See `RangeDecoding`."""
        for group in _groups(fetches):
            for each in self._decoded(group, wanted.start_offset, wanted.end_offset):
                yield iter((self._rows(each, wanted.topic_partition),)), each.next_offset
            # Batches that were skipped have no rows, and are read.
            yield iter(()), group[-1].next_offset

    def _decoded(
        self, group: Sequence[FetchedBatches], start_offset: int, end_offset: int
    ) -> Iterator[TypedRows]:
        """The rows of fetches that follow one another in one partition."""
        first = group[0]
        reading = self._readings[first.tp.topic]
        position, deadline = start_offset, time.monotonic() + SCHEMA_PATIENCE_S
        while True:
            try:
                for rows in iter_typed_decoded(
                    chain.from_iterable(each.committed() for each in group),
                    reading.plan,
                    start_offset=position,
                    end_offset=end_offset,
                    framed=first.framed,
                    topic_schema=reading.known.schema,
                ):
                    position = rows.next_offset
                    if len(rows):
                        yield rows
                return
            except UnknownSchemaVersionError:
                if time.monotonic() >= deadline:
                    raise
                self._look_again(reading)

    def _look_again(self, reading: TypedReading) -> None:
        """Request the topic's present versions; the columns that are read stay the same."""
        name, before = reading.topic, reading.known
        known = known_schemas(self._options.connection, [name], refresh=True)[name]
        if known is None or known.topic_id != before.topic_id:
            raise ConnectorError(
                "UNKNOWN_TOPIC_ID", f"the topic '{name}' was deleted, and is another one now"
            )
        if len(known.schema.versions) > len(before.schema.versions):
            reading.known = known
        else:
            time.sleep(POLL_S)

    def _planned(self, name: str, topic_id: UUID | None) -> TypedReading:
        known = self._read.schemas.get(name)
        if known is None or topic_id not in (None, known.topic_id):
            known = self._late(name, topic_id)
        columns = tuple(each.column for each in self._read.columns)
        return TypedReading(name, known, Selection(columns, self._read.where))

    def _late(self, name: str, topic_id: UUID | None) -> KnownSchema:
        """The schema of a topic that was created after the query began."""
        for refresh in (False, True):
            found = known_schemas(self._options.connection, [name], refresh=refresh)[name]
            if found is not None and topic_id in (None, found.topic_id):
                check_fits(self._read, name, found.schema.latest, beside=min(self._read.schemas))
                return found
        raise ConnectorError(
            "UNKNOWN_TOPIC_ID", f"the topic '{name}' was deleted, or created again, meanwhile"
        )

    def _rows(self, rows: TypedRows, tp: TopicPartition) -> pa.RecordBatch:
        batch = self._readings[tp.topic].batch_of(tp, rows)
        if batch.schema.equals(self._schema, check_metadata=True):
            return batch
        arrays = [
            found if found.type.equals(field.type, check_metadata=True) else found.cast(field.type)
            for found, field in zip(batch.columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def arrow_schema(read: TypedRead) -> pa.Schema:
    """The schema of the rows. A test compares it with pyspark's own conversion."""
    metadata = {
        **METADATA_TYPES,
        TOPIC: pa.string(),
        PARTITION: pa.int32(),
        HEADERS: headers_arrow_type(),
        **{name: arrow_type(each) for name, each in read.others.items()},
    }
    return pa.schema(
        [
            pa.field(
                each.name, metadata[each.column] if each.type is None else arrow_type(each.type)
            )
            for each in read.columns
        ]
    )


def _groups(fetches: Iterable[FetchedBatches]) -> Iterator[list[FetchedBatches]]:
    """Fetches that are decoded together: where all columns are read, one has few rows, and each
    piece that goes to Spark has a cost of its own."""
    group: list[FetchedBatches] = []
    held = 0
    try:
        for fetched in fetches:
            group.append(fetched)
            held += len(fetched.records)
            offsets = fetched.next_offset - group[0].start_offset
            if held >= GROUP_BYTES or offsets >= MAX_BATCH_ROWS:
                yield group
                group, held = [], 0
    except HeadraceError:
        # What came before it counts.
        if group:
            yield group
        raise
    if group:
        yield group


def _joined(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(held) == 1:
        return held[0]
    return pa.concat_batches(held)


assert JOINED_ROWS <= MAX_BATCH_ROWS
