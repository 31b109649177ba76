"""Typed topics on a fake cluster, and their batches."""

from typing import Any
from uuid import UUID

import pyarrow as pa

from storage_engine.client.fetching.typed_reading import Selection, TypedReading
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import TopicSchema, new_schema
from storage_engine.protocol.typed.arrow_types import arrow_schema
from storage_engine.protocol.typed.typed_encoder import iter_typed
from storage_engine.tests.client.fake_cluster import FakeCluster

SCHEMA = new_schema(parse_ddl("id BIGINT NOT NULL, tag STRING, fare DOUBLE"), [])
WIDER = SCHEMA.evolved(parse_ddl("id BIGINT NOT NULL, tag STRING, fare DOUBLE, note STRING"))
ROWS_IN_BATCH = 10
BATCHES = range(60)
ROWS = len(BATCHES) * ROWS_IN_BATCH


def typed_batch(
    topic_id: UUID, rows: dict[str, Any], schema: TopicSchema = SCHEMA, **settings: Any
) -> bytes:
    version = schema.latest
    columns = arrow_schema([version.column(name) for name in rows])
    (batch,) = iter_typed(
        pa.RecordBatch.from_pydict(rows, schema=columns), schema, version, topic_id, **settings
    )
    return bytes(batch.data)


def numbered_rows(number: int) -> dict[str, Any]:
    """The rows of batch `number`: ids go on from batch to batch, the fare is the batch's."""
    first = number * ROWS_IN_BATCH
    return {
        "id": list(range(first, first + ROWS_IN_BATCH)),
        "tag": ["x" if n % 2 else None for n in range(ROWS_IN_BATCH)],
        "fare": [float(number)] * ROWS_IN_BATCH,
    }


def add_typed_topic(fake: FakeCluster, topic: str, leaders: list[int]) -> UUID:
    fake.add_topic(topic, leaders)
    fake.schemas[topic] = SCHEMA
    return fake.topic_ids[topic]


def append_numbered(fake: FakeCluster, topic: str, numbers: Any, partition: int = 0) -> None:
    for number in numbers:
        batch = typed_batch(fake.topic_ids[topic], numbered_rows(number))
        fake.partition(topic, partition).append(batch)


def reading_of(
    fake: FakeCluster, columns: list[str] | None = None, where: str | None = None
) -> TypedReading:
    """The reading of topic t by its present schema."""
    known = KnownSchema(fake.topic_ids["t"], fake.schemas["t"])
    return TypedReading("t", known, Selection.of(columns, where))
