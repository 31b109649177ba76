"""How the records of one topic become Arrow batches: columns of its schema, or of records.

    typed topic    its visible columns, then _topic, _partition, _offset, _timestamp; with a key,
                   then _deleted, which is true for a row that only says that its key is gone
    opaque topic   key, value, headers, timestamp, timestampType, then the same four

Rows are those of committed transactions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import pyarrow as pa

from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.fetching.typed_reading import SCHEMA_WAIT_MS, Selection, TypedReading
from storage_engine.client.topic_schemas import KnownSchema, TopicSchemas
from storage_engine.core.errors import KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.topic_schema import TopicSchema, UnknownSchemaVersionError
from storage_engine.net.deadline import Deadline, sleep_ms
from storage_engine.protocol.records.record_decoder import DecodedRecords, iter_decoded
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.typed.projection import TypedWant

PLACES = ("_topic", "_partition", "_offset", "_timestamp")
"""The columns that say which record a row is."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_PLACE_FIELDS = [
    pa.field("_topic", pa.string()),
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", _TIMESTAMP),
]
RECORD_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("timestamp", _TIMESTAMP),
        pa.field("timestampType", pa.int32()),
        *_PLACE_FIELDS,
    ]
)
"""The rows of an opaque topic."""

_PAUSE_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRows:
    """The reading of one topic by one state of its schema."""

    topic: str
    topic_id: UUID
    typed: TypedReading | None
    """None for an opaque topic."""

    @property
    def topic_schema(self) -> TopicSchema | None:
        """The schema of a typed topic; None for an opaque one."""
        return None if self.typed is None else self.typed.known.schema

    @property
    def want(self) -> TypedWant | None:
        """The wish that goes with fetches."""
        return None if self.typed is None else self.typed.want

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of `batches`."""
        return RECORD_SCHEMA if self.typed is None else self.typed.arrow_schema

    def outdated_by(self, fetched: FetchedBatches) -> KafkaError | None:
        """Why it can't read these: they are of a later schema, or another topic."""
        return None if self.typed is None else self.typed.outdated_by(fetched)

    def batches(self, fetched: FetchedBatches) -> Iterator[pa.RecordBatch]:
        """The rows, in pieces of bounded size. CorruptRecordError."""
        if self.typed is not None:
            for rows in self.typed.rows(fetched):
                if len(rows):
                    yield self.typed.batch_of(fetched.tp, rows)
            return
        for records in iter_decoded(
            fetched.committed(), start_offset=fetched.start_offset, include_headers=True
        ):
            yield _batch_of(fetched.tp, records)


def _batch_of(tp: TopicPartition, records: DecodedRecords) -> pa.RecordBatch:
    count = len(records)
    times = records.timestamps
    columns = [
        records.keys,
        records.values,
        records.headers,
        times,
        records.timestamp_types,
        pa.repeat(pa.scalar(tp.topic, pa.string()), count),
        pa.array(np.full(count, tp.partition, np.int32)),
        records.offsets,
        times,
    ]
    return pa.record_batch(columns, schema=RECORD_SCHEMA)


def rows_of(cluster: Cluster, topic: str, *, seen: FetchedBatches | None = None) -> TopicRows:
    """The reading of a topic by the schema that brokers know now, or know soon where `seen` has a
    later one: they learn of it one after the other. KafkaError where the topic is gone,
    UnknownSchemaVersionError, which is retriable, where no broker knows the version yet."""
    schemas = TopicSchemas(cluster)
    deadline = Deadline.after(SCHEMA_WAIT_MS)
    cluster.refresh([topic])
    while True:
        known = schemas.refresh(topic)
        topic_id = cluster.topic(topic).topic_id if known is None else known.topic_id
        found = TopicRows(topic=topic, topic_id=topic_id, typed=_reading(topic, known))
        error = None if seen is None else found.outdated_by(seen)
        if not isinstance(error, UnknownSchemaVersionError):
            return found
        if deadline.passed:
            raise error
        sleep_ms(_PAUSE_MS)


def _reading(topic: str, known: KnownSchema | None) -> TypedReading | None:
    if known is None:
        return None
    names = [column.name for column in known.schema.latest.visible]
    gone = ["_deleted"] if known.schema.key else []
    return TypedReading(topic, known, Selection.of([*names, *PLACES, *gone], None))
