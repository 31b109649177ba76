"""Reads rows of typed topics: selects columns and rows, and derives what to fetch from brokers.

    Selection (columns, where) + the topic's schema -> TypedReading -> a fetch's TypedWant
                                                                    -> rows of what was fetched

A reading belongs to one state of a schema. Batches of a later version are never decoded by it:
`outdated_by` detects them, and the reader asks for the schema again. Metadata columns have names
that no column of a schema has:

    column      type                      meaning
    _topic      string
    _partition  int32
    _offset     int64
    _timestamp  timestamp[us, UTC]        the record's time
    _headers    list<struct<key, value>>  null without headers
    _deleted    boolean                   true: the row only says that its key is gone; such rows
                                          are left out unless this column is asked for
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.topic_schemas import KnownSchema, TopicSchemas
from storage_engine.core.errors import ConfigError, CorruptRecordError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.topic_schema import METADATA_COLUMNS as METADATA_COLUMNS
from storage_engine.core.typed.topic_schema import TopicSchema, UnknownSchemaVersionError
from storage_engine.core.typed.where import parse_where
from storage_engine.net.deadline import Deadline, sleep_ms
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.protocol.typed.frames import batch_origin, frame_bounds, origin_of
from storage_engine.protocol.typed.projection import WANT_FRAMES, WANT_STORED, TypedWant

if TYPE_CHECKING:
    import pyarrow as pa

    from storage_engine.protocol.typed.typed_decoder import TypedReadPlan, TypedRows

TOPIC, PARTITION = "_topic", "_partition"

SCHEMA_WAIT_MS = 5_000
"""How long readers that wait for a version of a schema let brokers learn of it."""

_PAUSE_MS = 100


class Selection(NamedTuple):
    """The columns and rows that a reader wants of typed topics."""

    columns: tuple[str, ...] | None = None
    """Column names, also of metadata; None: all columns that are not hidden."""
    where: str | None = None
    """The condition for rows: comparisons joined by AND; None: all rows."""

    @classmethod
    def of(cls, columns: Iterable[str] | None, where: str | None) -> "Selection":
        """ConfigError for columns that no topic could have."""
        if isinstance(columns, str):
            raise ConfigError(f"columns is a list of names; give ['{columns}']")
        names = None if columns is None else tuple(columns)
        if names is not None:
            if not names:
                raise ConfigError("columns is empty; name a column, or leave it out for all")
            seen: set[str] = set()
            for name in names:
                if name.lower() in seen:
                    raise ConfigError(f"columns has '{name}' twice; name it once")
                seen.add(name.lower())
        return cls(names, where if where and where.strip() else None)

    @property
    def is_everything(self) -> bool:
        return self.columns is None and self.where is None


class TypedReading:
    """A selection, applied to one state of a topic's schema."""

    def __init__(self, topic: str, known: KnownSchema, selection: Selection) -> None:
        """ConfigError for a column that the topic does not have, or a wrong `where`."""
        self.topic = topic
        self.known = known
        self.selection = selection
        try:
            self._choose(known.schema)
        except ConfigError as error:
            raise ConfigError(f"topic '{topic}': {error}") from None

    def _choose(self, schema: TopicSchema) -> None:
        # Imported now: they bring Arrow.
        import pyarrow as pa

        from storage_engine.protocol.typed.typed_decoder import plan

        selection = self.selection
        comparisons = () if selection.where is None else parse_where(selection.where, schema.latest)
        columns = selection.columns
        if columns is None:
            columns = tuple(column.name for column in schema.latest.visible)
        names = [
            schema.latest.column(name).name for name in columns if name not in METADATA_COLUMNS
        ]
        metadata = [
            name for name in columns if name in METADATA_COLUMNS and name not in (TOPIC, PARTITION)
        ]
        self.plan: TypedReadPlan = plan(schema, names, metadata, comparisons)
        self.want = _want_of(self.plan, schema.latest.by_id.keys())
        ours = {TOPIC: pa.field(TOPIC, pa.string()), PARTITION: pa.field(PARTITION, pa.int32())}
        self.arrow_schema: pa.Schema = pa.schema(
            [
                ours[name]
                if name in ours
                else self.plan.arrow_schema.field(
                    name if name in METADATA_COLUMNS else schema.latest.column(name).name
                )
                for name in columns
            ]
        )

    def rows(
        self, fetched: FetchedBatches, *, end_offset: int | None = None
    ) -> "Iterator[TypedRows]":
        """The rows of committed transactions that `where` lets through, within the offsets asked
        for, in groups of some 50,000; a group may be empty. CorruptRecordError."""
        from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded

        return iter_typed_decoded(
            fetched.committed(),
            self.plan,
            start_offset=fetched.start_offset,
            end_offset=end_offset,
            framed=fetched.framed,
            topic_schema=self.known.schema,
        )

    def batch_of(self, tp: TopicPartition, rows: "TypedRows") -> "pa.RecordBatch":
        """Rows with the columns that were asked for, in that order."""
        import numpy as np
        import pyarrow as pa

        from storage_engine.protocol.typed.nested_arrays import binary_values, int_array

        batch = rows.batch
        if batch.schema == self.arrow_schema:
            return batch
        count = len(rows)
        # Not by `pa.scalar`, which imports pandas.
        topic = binary_values([tp.topic.encode()]).view(pa.string())
        places = {TOPIC: topic, PARTITION: int_array(np.array([tp.partition], np.int32))}
        columns = [
            pa.repeat(places[field.name][0], count)
            if field.name in places
            else batch.column(field.name)
            for field in self.arrow_schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)

    def outdated_by(self, fetched: FetchedBatches) -> KafkaError | None:
        """Return why this reading can't read the batches: one has a later version of the schema, or
        belongs to another topic of the same name. None when it can."""
        latest, ours = self.known.schema.latest.version, self.known.topic_id.bytes
        for topic_id, version in _origins(fetched):
            if topic_id != ours:
                return KafkaError(
                    f"topic '{self.topic}' was deleted, and is another one now",
                    ErrorCode.UNKNOWN_TOPIC_ID,
                )
            if version > latest:
                return UnknownSchemaVersionError(
                    f"topic '{self.topic}': rows have version {version} of its schema, and the "
                    f"brokers tell of {latest} only: try again"
                )
        return None


def _origins(fetched: FetchedBatches) -> Iterator[tuple[bytes, int]]:
    """Yield the topic's id and the schema's version of each batch with rows. Damaged batches, and
    all behind them, are left to the decoder."""
    records = fetched.records
    if fetched.framed:
        found = (origin_of(records[start:end]) for start, end in frame_bounds(records))
    else:
        found = (
            batch_origin(records[start : start + header.size_in_bytes])
            for start, header in iter_headers(records)
        )
    with contextlib.suppress(CorruptRecordError):
        yield from (origin for origin in found if origin is not None)


def _want_of(plan: "TypedReadPlan", known_ids: Iterable[int]) -> TypedWant:
    """Return the want: batches as stored if all columns are read, which costs brokers nothing."""
    if not plan.comparisons and set(known_ids) <= set(plan.column_ids):
        return TypedWant(WANT_STORED)
    return TypedWant(WANT_FRAMES, tuple(plan.column_ids), tuple(plan.comparisons))


class TypedReadings:
    """The readings of several topics for one selection, and their schemas. For one thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._schemas = TopicSchemas(cluster)
        self._selection = Selection()
        self._readings: dict[str, TypedReading | None] = {}

    def select(self, selection: Selection) -> None:
        """Set the columns and rows to read from now on."""
        if selection != self._selection:
            self._selection = selection
            self._readings.clear()

    def known(self, topic: str) -> "TypedReading | None":
        """Return the last result of `of` for the topic; None, too, before its first call."""
        return self._readings.get(topic)

    def is_known(self, topic: str) -> bool:
        return topic in self._readings

    def of(self, topic: str) -> TypedReading | None:
        """Return the reading; None for a topic without a schema: it has records. ConfigError where
        the selection does not fit the topic; KafkaError and DeadlineExceededError where its schema
        is not available now."""
        if topic not in self._readings:
            try:
                reading = self._reading(topic, self._schemas.get(topic))
            except ConfigError:
                # The column may be new.
                reading = self._reading(topic, self._schemas.refresh(topic))
            self._readings[topic] = reading
        return self._readings[topic]

    def renewed(
        self, topic: str, fetched: FetchedBatches, *, wait_ms: int = 0
    ) -> TypedReading | None:
        """Return the reading by the schema that brokers know now, or within `wait_ms`: they learn
        of a new version one after the other. UnknownSchemaVersionError, which is retriable, where
        this reading can't read `fetched` either."""
        deadline = Deadline.after(wait_ms)
        while True:
            reading = self._reading(topic, self._schemas.refresh(topic))
            error = None if reading is None else reading.outdated_by(fetched)
            if error is None:
                self._readings[topic] = reading
                return reading
            if deadline.passed or not isinstance(error, UnknownSchemaVersionError):
                raise error
            sleep_ms(_PAUSE_MS)

    def _reading(self, topic: str, known: KnownSchema | None) -> TypedReading | None:
        if known is not None:
            return TypedReading(topic, known, self._selection)
        if not self._selection.is_everything:
            raise without_columns(topic)
        return None


def without_columns(topic: str) -> ConfigError:
    """Return the error for a selection of columns of a topic without a schema."""
    return ConfigError(
        f"topic '{topic}' has no schema, so it has no columns to choose or compare: leave out "
        "columns and where"
    )


def check_alike(readings: "Mapping[str, TypedReading | None]") -> None:
    """ConfigError where the rows of these topics, by name, don't have the same columns: they could
    not be in one table."""
    shapes = [(name, _shape(reading)) for name, reading in sorted(readings.items())]
    for name, shape in shapes[1:]:
        first, expected = shapes[0]
        if shape != expected:
            raise ConfigError(
                f"topics '{first}' and '{name}' can't be read into one table: '{first}' has "
                f"{_told(expected)}, '{name}' {_told(shape)}; name columns that are the same in "
                "both, or read them by themselves"
            )


def _shape(reading: TypedReading | None) -> "pa.Schema | None":
    return None if reading is None else reading.arrow_schema


def _told(shape: "pa.Schema | None") -> str:
    if shape is None:
        return "records without a schema"
    return ", ".join(f"{field.name} {field.type}" for field in shape)
