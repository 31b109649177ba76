"""Makes rows of fetched batches of typed topics, with the columns of the query, in its order.

A batch of a version that is not known yet makes this ask for the schema again, and decode it then:
columns are found by their ids, so the rows stay those of the query.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from uuid import UUID

import pyarrow as pa

from connector.errors import ConnectorError
from connector.options.source_options import SourceOptions
from connector.schema import headers_arrow_type
from connector.source.arrow_batches import MAX_BATCH_ROWS, repeated
from connector.source.offset_range import OffsetRange
from connector.source.typed.typed_read import TypedRead, check_fits
from connector.topic_schemas import known_schemas
from connector.typed_columns import DELETED, HEADERS, OFFSET, PARTITION, TIMESTAMP, TOPIC
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.topic_schema import TopicSchema, UnknownSchemaVersionError
from storage_engine.protocol.typed.arrow_types import arrow_type
from storage_engine.protocol.typed.projection import WANT_FRAMES, WANT_STORED, TypedWant
from storage_engine.protocol.typed.typed_decoder import (
    TypedReadPlan,
    TypedRows,
    iter_typed_decoded,
    plan,
)

SCHEMA_PATIENCE_S = 30.0
"""How long a version that a batch has may be unknown to the brokers that are asked: the one that
took the batch knew it."""

POLL_S = 0.1

JOINED_ROWS = 10_000
"""Pieces of shared tasks are joined up to this: each piece that goes to Spark has a cost of its
own."""

GROUP_BYTES = 12 << 20
"""The most that is held of fetches to be decoded together; the last of them comes on top."""


@dataclass(slots=True)
class _Topic:
    """How the batches of a topic are decoded."""

    plan: TypedReadPlan
    schema: TopicSchema
    """The newest known: with the versions of all batches so far."""
    want: TypedWant
    topic_id: UUID
    is_as_wanted: bool
    """What is decoded are the rows' columns, in their order, of their types and names."""


class TypedDecoding:
    """See `RangeDecoding`."""

    def __init__(self, options: SourceOptions, read: TypedRead) -> None:
        self._options = options
        self._read = read
        self._topics: dict[str, _Topic] = {}
        self._schema = arrow_schema(read)

    def wanted(self, ranges: Iterable[OffsetRange]) -> dict[str, TypedWant]:
        """See `RangeDecoding`. A topic that was not there when the query began is asked for its
        schema; planning has checked that it fits."""
        for each in ranges:
            topic = each.topic_partition.topic
            if topic not in self._topics:
                self._topics[topic] = self._planned(topic, each.topic_id)
        return {topic: each.want for topic, each in self._topics.items()}

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
        topic = self._topics[first.tp.topic]
        position, deadline = start_offset, time.monotonic() + SCHEMA_PATIENCE_S
        while True:
            try:
                for rows in iter_typed_decoded(
                    chain.from_iterable(each.committed() for each in group),
                    topic.plan,
                    start_offset=position,
                    end_offset=end_offset,
                    framed=first.framed,
                    topic_schema=topic.schema,
                ):
                    position = rows.next_offset
                    if len(rows):
                        yield rows
                return
            except UnknownSchemaVersionError:
                if time.monotonic() >= deadline:
                    raise
                self._look_again(first.tp.topic, topic)

    def _look_again(self, name: str, topic: _Topic) -> None:
        known = known_schemas(self._options.connection, [name], refresh=True)[name]
        if known is None or known.topic_id != topic.topic_id:
            raise ConnectorError(
                "UNKNOWN_TOPIC_ID", f"the topic '{name}' was deleted, and is another one now"
            )
        if len(known.schema.versions) > len(topic.schema.versions):
            topic.schema = known.schema
        else:
            time.sleep(POLL_S)

    def _planned(self, name: str, topic_id: UUID | None) -> _Topic:
        known = self._read.schemas.get(name)
        if known is None or topic_id not in (None, known.topic_id):
            known = self._late(name, topic_id)
        version = known.schema.latest
        read = self._read
        made = plan(
            known.schema,
            [each.column for each in read.topic_columns],
            sorted(read.metadata - {TOPIC, PARTITION}),
            read.comparisons(name, version),
        )
        return _Topic(
            made,
            known.schema,
            want_of(made, known.schema),
            known.topic_id,
            made.arrow_schema.equals(self._schema, check_metadata=True),
        )

    def _late(self, name: str, topic_id: UUID | None) -> KnownSchema:
        """The schema of a topic that came later."""
        for refresh in (False, True):
            found = known_schemas(self._options.connection, [name], refresh=refresh)[name]
            if found is not None and topic_id in (None, found.topic_id):
                check_fits(self._read, name, found.schema.latest, beside=min(self._read.schemas))
                return found
        raise ConnectorError(
            "UNKNOWN_TOPIC_ID", f"the topic '{name}' was deleted, or created again, meanwhile"
        )

    def _rows(self, rows: TypedRows, tp: TopicPartition) -> pa.RecordBatch:
        if self._topics[tp.topic].is_as_wanted:
            return rows.batch
        arrays = []
        for each, field in zip(self._read.columns, self._schema, strict=True):
            if each.type is None and each.column in (TOPIC, PARTITION):
                arrays.append(repeated(each.column[1:], tp, len(rows)))
            else:
                found = rows.batch.column(each.column)
                is_right = found.type.equals(field.type, check_metadata=True)
                arrays.append(found if is_right else found.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def arrow_schema(read: TypedRead) -> pa.Schema:
    """The schema of the rows. A test compares it with pyspark's own conversion."""
    metadata = {
        TOPIC: pa.string(),
        PARTITION: pa.int32(),
        OFFSET: pa.int64(),
        TIMESTAMP: pa.timestamp("us", tz="UTC"),
        HEADERS: headers_arrow_type(),
        DELETED: pa.bool_(),
    }
    return pa.schema(
        [
            pa.field(
                each.name, metadata[each.column] if each.type is None else arrow_type(each.type)
            )
            for each in read.columns
        ]
    )


def want_of(made: TypedReadPlan, schema: TopicSchema) -> TypedWant:
    """What to ask the broker for. Where all columns are read, batches come as they are stored,
    which costs the broker nothing."""
    everything = {column.column_id for column in schema.latest.columns}
    if not made.comparisons and everything <= set(made.column_ids):
        return TypedWant(WANT_STORED)
    return TypedWant(WANT_FRAMES, tuple(made.column_ids), tuple(made.comparisons))


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
