"""The rows of a run's typed topics, as typed batches and as JSON records, and back.

A row tells by itself whether it is whole: its text follows from its number and its name.
"""

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa

from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import TopicSchema, new_schema
from storage_engine.protocol.records.record_batch import (
    NO_PRODUCER_ID,
    BatchHeader,
    Codec,
    iter_headers,
)
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import iter_encoded
from storage_engine.protocol.typed.directory import Directory
from storage_engine.protocol.typed.kept_rows import OpenTypedBatch
from storage_engine.protocol.typed.typed_batch import directory_of, is_typed
from storage_engine.protocol.typed.typed_encoder import iter_typed

BATCH_BYTES = 1 << 20
NAMES = tuple(f"name-{number}" for number in range(8))

SCHEMA: TopicSchema = new_schema(
    parse_ddl("name STRING NOT NULL, number BIGINT NOT NULL, text STRING"), ["name"]
)
LATER: TopicSchema = SCHEMA.evolved(
    parse_ddl("name STRING NOT NULL, number BIGINT NOT NULL, text STRING, more INT")
)
"""A schema with a version that the topics do not have."""


class TypedRow(NamedTuple):
    """A row; `text` None: a tombstone."""

    name: str
    number: int
    is_tombstone: bool = False

    @property
    def text(self) -> str:
        return f"{self.number} of {self.name} " * (1 + self.number % 5)


class Producing(NamedTuple):
    """The producer of a batch."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    sequence: int = -1


def typed_batch(
    rows: Sequence[TypedRow],
    topic_id: UUID,
    producer: Producing,
    *,
    timestamp_ms: int,
    schema: TopicSchema = SCHEMA,
    compression: Codec = Codec.NONE,
) -> memoryview:
    """Return one batch of columns, of the latest version of `schema`."""
    gone = [row.is_tombstone for row in rows]
    columns = {
        "name": pa.array([row.name for row in rows], pa.string()),
        "number": pa.array([None if row.is_tombstone else row.number for row in rows], pa.int64()),
        "text": pa.array([None if row.is_tombstone else row.text for row in rows], pa.string()),
    }
    (batch,) = iter_typed(
        pa.RecordBatch.from_pydict(columns),
        schema,
        schema.latest,
        topic_id,
        timestamps=pa.array([timestamp_ms] * len(rows), pa.int64()),
        tombstones=pa.array(gone) if any(gone) else None,
        compression=compression,
        batch_bytes=BATCH_BYTES,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    )
    return memoryview(batch.data)


def json_batch(rows: Sequence[TypedRow], producer: Producing, *, timestamp_ms: int) -> memoryview:
    """Return one batch of JSON records, as a client without columns sends it."""
    values = [None if row.is_tombstone else json.dumps(_fields(row)).encode() for row in rows]
    (batch,) = iter_encoded(
        pa.array(values, pa.binary()),
        pa.array([row.name.encode() for row in rows], pa.binary()),
        timestamps_ms=pa.array([timestamp_ms] * len(rows), pa.int64()),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    )
    return memoryview(batch.data)


def _fields(row: TypedRow) -> dict[str, str | int | None]:
    return {"name": row.name, "number": row.number, "text": row.text}


class ReadRow(NamedTuple):
    """A row as it was read."""

    offset: int
    name: str
    number: int | None
    text: str | None

    @property
    def is_tombstone(self) -> bool:
        return self.number is None


def rows_of_typed(header: BatchHeader, batch: memoryview) -> list[ReadRow]:
    """Return the rows of one typed batch."""
    opened = OpenTypedBatch(header, batch, SCHEMA)
    columns = [opened.values(column.name).to_pylist() for column in SCHEMA.latest.columns]
    return [ReadRow(*fields) for fields in zip(opened.offsets.tolist(), *columns, strict=True)]


def rows_of_json(records: memoryview, start_offset: int) -> list[ReadRow]:
    """Return the rows of batches of JSON records."""
    found = []
    decoded = decode_batches(records, start_offset=start_offset)
    for offset, key, value in zip(
        decoded.offsets.to_pylist(),
        decoded.keys.to_pylist(),
        decoded.values.to_pylist(),
        strict=True,
    ):
        fields = {} if value is None else json.loads(value)
        name = key.decode()
        if value is not None and fields["name"] != name:
            name = f"{name} in the key, {fields['name']} in the value"
        found.append(ReadRow(offset, name, fields.get("number"), fields.get("text")))
    return found


def typed_batches(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview, Directory]]:
    """Yield the typed batches among whole batches."""
    for position, header in iter_headers(data):
        if is_typed(header):
            batch = data[position : position + header.size_in_bytes]
            yield header, batch, directory_of(header, batch)
