"""The rows of the comparison as Avro: their schema, their records in a topic, and their sums.

Rule: both sides have the same record batches, and both write in the one schema, which is that of
our sink for these columns.
"""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise, zip_longest

import numpy as np
import pyarrow as pa

from benchmarks.beside_kafka.topics import REPLICAS, check_rows
from benchmarks.typed.columns import PIECE_ROWS, TWO, TYPES, made_of, make_rows
from connector.sink.avro.derived_schema import derived_schema
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.ids import TopicPartition
from storage_engine.core.schemas.avro.parsed import parse_avro_text
from storage_engine.core.schemas.avro.schema import AvroSchema
from storage_engine.core.schemas.languages import Schema, SchemaType
from storage_engine.core.typed.ddl import parse_type
from storage_engine.protocol.avro.encode import encode
from storage_engine.protocol.avro.framing import framed
from storage_engine.protocol.records.record_encoder import EncodedBatch, iter_encoded

PARTITIONS = 4

_BATCH_BYTES = 16 << 10
"""The default `batch.size` of Kafka's producers."""


def ride_schema() -> Schema:
    """Return the schema of the rows."""
    fields = ", ".join(f"{name}: {kind}" for name, kind in TYPES.items())
    text = derived_schema(parse_type(f"STRUCT<{fields}>"), "value")
    return Schema(schema_type=SchemaType.AVRO, text=text)


def fill(servers: str, topic: str, schema_id: int, rows: int) -> None:
    """Create a topic, and fill it with the rows from id 0 on."""
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, PARTITIONS, REPLICAS)
        with BatchWriter(cluster) as writer:
            for piece in made_of(0, rows):
                for number, batch in batches_of(piece, schema_id):
                    writer.append(TopicPartition(topic, number), batch)
    check_rows(servers, topic, PARTITIONS, rows)


def batches_of(piece: pa.RecordBatch, schema_id: int) -> Iterator[tuple[int, EncodedBatch]]:
    """Yield the rows as record batches with their partitions, of which all get as many; one
    partition after the other has its turn."""
    values = framed(schema_id, encode(_parsed(), piece))
    bounds = [len(values) * number // PARTITIONS for number in range(PARTITIONS + 1)]
    parts = [
        iter_encoded(values.slice(first, end - first), batch_bytes=_BATCH_BYTES)
        for first, end in pairwise(bounds)
    ]
    for turn in zip_longest(*parts):
        for number, batch in enumerate(turn):
            if batch is not None:
                yield number, batch


@cache
def _parsed() -> AvroSchema:
    return parse_avro_text(ride_schema(), {}, new=True).tree


def checksum(rows: int) -> int:
    """Return the sum over two columns of the rows that each read has to find."""
    total = 0
    for first in range(0, rows, PIECE_ROWS):
        ids, fares = make_rows(first, min(PIECE_ROWS, rows - first), TWO).columns
        total += int(ids.to_numpy().sum()) + int(np.rint(fares.to_numpy() * 100).sum())
    return total
