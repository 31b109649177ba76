"""A simulated broker with a typed topic of the foreign format Avro, and records for it."""

import io
import json
import struct
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.avro_text import avro_text
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import iter_encoded
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.tests.broker.schemas.schemas_support import create_schemas
from storage_engine.tests.broker.typed_topics.typed_support import (
    SCHEMA,
    TRIPS,
    create_typed,
    fetched,
)

AVRO = {"headrace_foreign_format": "avro"}
WRITER = {
    "type": "record",
    "name": "Ride",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "fare", "type": "double"},
        {"name": "tag", "type": ["null", "string"], "default": None},
    ],
}
"""A schema of a producer's own."""


def create_avro(cluster: SimulatedCluster) -> None:
    create_schemas(cluster)
    create_typed(cluster, **AVRO)


def row(number: int) -> dict[str, Any]:
    return {"id": number, "fare": number / 2, "tag": "a"}


def framed(schema_id: int, value: Any, schema: Any = WRITER) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return struct.pack(">bI", 0, schema_id) + body.getvalue()


def avro_batch(values: Sequence[bytes | None], keys: Any = None, **named: Any) -> bytearray:
    columns = [None if each is None else pa.array(each, pa.binary()) for each in (values, keys)]
    (batch,) = iter_encoded(*columns, **named)
    return bytearray(batch.data)


def rows(schema_id: int, *numbers: int, **named: Any) -> bytearray:
    return avro_batch([framed(schema_id, row(each)) for each in numbers], **named)


def own_text(schema: TopicSchema = SCHEMA, topic: str = "trips") -> str:
    return avro_text(schema, schema.latest, topic)


def stored_rows(
    cluster: SimulatedCluster, tp: TopicPartition = TRIPS, schema: TopicSchema = SCHEMA
) -> list[dict[str, Any]]:
    records = fetched(cluster, tp=tp, replica=1).records
    found: list[dict[str, Any]] = []
    for each in iter_typed_decoded(
        bytes(records or b""), plan(schema), framed=False, topic_schema=schema
    ):
        found += each.batch.to_pylist()
    return found


def read_avro(answer: Any, schema: TopicSchema = SCHEMA) -> list[tuple[int, bytes | None, Any]]:
    """The id, key and value of each record of a consumer's answer."""
    decoded = decode_batches(memoryview(bytes(answer.records)))
    parsed = fastavro.parse_schema(json.loads(own_text(schema)))
    found = []
    for key, value in zip(decoded.keys.to_pylist(), decoded.values.to_pylist(), strict=True):
        magic, schema_id = struct.unpack_from(">bI", value)
        assert magic == 0
        body = fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None)
        found.append((schema_id, key, body))
    return found
