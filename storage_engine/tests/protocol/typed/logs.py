"""Typed batches as a log has them, and what readers make of them."""

from uuid import UUID

import pyarrow as pa

from storage_engine.core.errors import KafkaError
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import TopicSchema, new_schema
from storage_engine.protocol.records.record_batch import Codec, patch, read_header
from storage_engine.protocol.typed.arrow_types import arrow_schema
from storage_engine.protocol.typed.projection import WANT_FRAMES, TypedWant
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.protocol.typed.typed_encoder import iter_typed
from storage_engine.tests.protocol.typed.in_memory import project

TOPIC_ID = UUID(int=7)
NOW = 1_700_000_000_000


def schema_of(ddl: str, key=()) -> TopicSchema:
    return new_schema(parse_ddl(ddl), key)


def rows_from(schema: TopicSchema, rows: list[dict]):
    """A pa.RecordBatch of the latest version from dictionaries; what they leave out is null."""
    return pa.RecordBatch.from_pylist(rows, arrow_schema(schema.latest.visible))


def encoded(rows, schema, **options):
    """The typed batches of some rows."""
    options = {"now_ms": NOW, "compression": Codec.NONE, **options}
    return list(iter_typed(rows, schema, schema.latest, TOPIC_ID, **options))


def log_of(batches, base_offset=0, leader_epoch=3) -> memoryview:
    """The batches one after the other, with their offsets."""
    log = bytearray()
    for batch in batches:
        data = bytearray(batch.data)
        patch(data, 0, base_offset=base_offset, leader_epoch=leader_epoch)
        base_offset += read_header(data).records_count
        log += data
    return memoryview(bytes(log))


def frames_of(log, read_plan, schema, limit_bytes=1 << 30) -> bytes:
    """A broker's answer to a reader with this plan."""
    want = TypedWant(WANT_FRAMES, read_plan.column_ids, read_plan.comparisons)
    answer = project(log, want, schema, limit_bytes=limit_bytes)
    data = b"".join(answer.pieces)
    assert len(data) == answer.size
    return data


def decoded(data, schema, read_plan=None, *, framed=False, **options):
    """All pieces that a reader gets."""
    read_plan = read_plan or plan(schema)
    return list(iter_typed_decoded(data, read_plan, framed=framed, topic_schema=schema, **options))


def table_of(pieces, read_plan):
    """The rows of all pieces as one pa.Table."""
    batches = [piece.batch for piece in pieces]
    return pa.Table.from_batches(batches, read_plan.arrow_schema).combine_chunks()


OUTSIDE_CRC = {*range(8), *range(12, 16)}
"""The places of a batch's base offset and leader epoch, which the leader sets, as in Kafka."""


def check_flipped_bytes(data, read, positions, *, is_stored=False):
    """`read` gives the same table of the data with a bit changed at any of the positions, or raises
    an error of ours. `is_stored`: the data are a batch of a log. Where its length grew it is cut
    off, and left out, as everywhere."""
    expected = read(data)
    for position in positions:
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        try:
            found = read(memoryview(changed))
        except KafkaError:
            continue
        is_cut_off = is_stored and 8 <= position < 12 and not found.num_rows
        assert found.equals(expected) or is_cut_off, position
