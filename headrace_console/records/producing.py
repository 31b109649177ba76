"""Produces one record that a user typed."""

import base64
import binascii
import random
import time

import pyarrow as pa

from headrace_console.cluster.upstream import DEADLINE_MS
from headrace_console.given import Body, bad
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.partitioner import partitions_for_keys
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.client.topic_schemas import KnownSchema, TopicSchemas
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.typed.json_columns import typed_from_json
from storage_engine.protocol.typed.row_errors import RowsDoNotFitError
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.protocol.typed.typed_keys import key_bytes
from storage_engine.tools.document import Document

MOST_BYTES = 900_000
"""The most bytes of key, value and headers: below the default max.message.bytes."""
MOST_HEADERS = 100


def produce_one(cluster: Cluster, topic: str, body: Body) -> Document:
    """Produce a record with acks=all, and return its partition, offset and timestamp."""
    key, value = _bytes_of(body, "key"), _bytes_of(body, "value")
    headers = [
        (each.text("key", most=10_000), _bytes_of(each, "value"))
        for each in body.parts("headers", most=MOST_HEADERS)
    ]
    size = len(key or b"") + len(value or b"")
    size += sum(len(name.encode()) + len(data or b"") for name, data in headers)
    if size > MOST_BYTES:
        raise bad(f"the record has {size} bytes; the console sends {MOST_BYTES} at most")
    known = cluster.topic(topic)
    tp = TopicPartition(topic, _partition(cluster, body, topic, len(known.partitions), key, value))
    cluster.leader(tp)
    now_ms = int(time.time() * 1000)
    (batch,) = encode_batches(
        pa.array([value], pa.binary()),
        pa.array([key], pa.binary()),
        pa.array([[{"key": name, "value": data} for name, data in headers]], HEADERS_TYPE),
        now_ms=now_ms,
    )
    with BatchWriter(cluster, delivery_timeout_ms=DEADLINE_MS) as writer:
        writer.append(tp, batch)
        writer.flush()
        offset = writer.deliveries[tp].first_offset
    return {"partition": tp.partition, "offset": offset, "timestamp_ms": now_ms}


def _bytes_of(body: Body, name: str) -> bytes | None:
    part = body.part(name)
    if part is None:
        return None
    text = part.text_or_none("text", most=MOST_BYTES)
    encoded = part.text_or_none("base64", most=2 * MOST_BYTES)
    if (text is None) == (encoded is None):
        raise body.wrong(name, "null, or an object with either 'text' or 'base64'")
    if text is not None:
        return text.encode()
    assert encoded is not None
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise body.wrong(f"{name}.base64", "base64") from None


def _partition(
    cluster: Cluster, body: Body, topic: str, count: int, key: bytes | None, value: bytes | None
) -> int:
    """Return the requested partition; else the key's, as producers choose it; else any."""
    wanted = body.integer_or_none("partition")
    if wanted is not None:
        if wanted >= count:
            raise bad(f"'partition' must be below {count}, the number of partitions of '{topic}'")
        return wanted
    known = TopicSchemas(cluster).get(topic)
    if known is not None and known.schema.key:
        return int(partitions_for_keys(_row_key(known, value), count)[0])
    if key is not None:
        return int(partitions_for_keys(pa.array([key], pa.binary()), count)[0])
    return random.randrange(count)


def _row_key(known: KnownSchema, value: bytes | None) -> pa.Array:
    """Return the key of a row, read as the topic's leaders will read it."""
    schema = known.schema
    (batch,) = encode_batches(pa.array([value], pa.binary()))
    try:
        typed = typed_from_json(
            memoryview(batch.data), read_header(batch.data), schema, known.topic_id
        )
    except RowsDoNotFitError as error:
        raise bad(f"'value' is no row of topic: {error}") from None
    columns = plan(schema, [each.name for each in schema.key_columns(schema.latest)])
    (rows,) = iter_typed_decoded(typed, columns, framed=False, topic_schema=schema)
    return key_bytes(rows.batch, schema, schema.latest)
