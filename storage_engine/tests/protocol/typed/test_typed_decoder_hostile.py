"""Damaged and hostile typed batches: an error of ours or the same values, never others."""

import struct

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError, KafkaError
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    Codec,
    patch_producer,
    read_header,
    seal,
)
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.typed.directory import encode_directory, read_directory
from storage_engine.protocol.typed.json_rows import as_json_batches
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.logs import (
    OUTSIDE_CRC,
    TOPIC_ID,
    check_flipped_bytes,
    decoded,
    encoded,
    frames_of,
    log_of,
    rows_from,
    schema_of,
    table_of,
)
from storage_engine.tests.protocol.typed.typed_values import comparable
from storage_engine.tests.sampling import examples

SCHEMA = schema_of("id BIGINT NOT NULL, s STRING, d DOUBLE, a ARRAY<STRUCT<x: STRING>>", ["id"])
METADATA = ["_offset", "_timestamp", "_headers", "_deleted"]
PLAN = plan(SCHEMA, metadata=METADATA)
ONE_COLUMN = plan(SCHEMA, ["s"], ["_offset"], [Comparison(3, Operator.GE, (0.0,))])


def small_log(codec=Codec.NONE) -> memoryview:
    rows = [{"id": n, "s": f"text {n % 2}", "d": n / 7, "a": [{"x": "y"}]} for n in range(3)]
    headers = pa.array([[{"key": "k", "value": b"v"}], None, None], HEADERS_TYPE)
    return log_of(
        encoded(
            rows_from(SCHEMA, rows),
            SCHEMA,
            compression=codec,
            headers=headers,
            timestamps=pa.array([1, 2, 3]),
            tombstones=pa.array([False, False, True]),
        ),
        base_offset=70,
    )


def inside_crc(log):
    return (each for each in range(len(log)) if each not in OUTSIDE_CRC)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_no_flipped_byte_of_a_batch_gives_other_values(codec):
    log = small_log(codec)
    read = lambda data: table_of(decoded(data, SCHEMA, PLAN), PLAN)  # noqa: E731
    check_flipped_bytes(log, read, inside_crc(log), is_stored=True)


@pytest.mark.parametrize("read_plan", [PLAN, ONE_COLUMN])
def test_no_flipped_byte_of_an_answer_gives_other_values(read_plan):
    """The same values come where the byte is in a column that is sent, but not read."""
    answer = frames_of(small_log(), read_plan, SCHEMA)
    read = lambda data: table_of(decoded(data, SCHEMA, read_plan, framed=True), read_plan)  # noqa: E731
    check_flipped_bytes(answer, read, range(len(answer)))


def test_no_flipped_byte_on_the_brokers_disk_reaches_a_reader_of_some_columns():
    read_plan = plan(SCHEMA, ["s"], ["_offset", "_timestamp"])

    def read(stored):
        answer = frames_of(stored, read_plan, SCHEMA)
        return table_of(decoded(answer, SCHEMA, read_plan, framed=True), read_plan)

    log = small_log()
    check_flipped_bytes(log, read, inside_crc(log), is_stored=True)


@settings(max_examples=examples(400), deadline=None)
@given(data=st.data())
def test_hostile_batches_with_right_crcs_give_errors_or_valid_rows(data):
    """The attacker has computed the CRCs, too, so that they tell nothing."""
    log = bytearray(small_log(data.draw(st.sampled_from([Codec.NONE, Codec.ZSTD]))))
    section = log[HEADER_BYTES:]
    directory = read_directory(section)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(section) - 1))
        section[position] = data.draw(st.integers(0, 255))
    entries = [
        entry._replace(crc=crc32c(section[directory.size + entry.place :][: entry.stored_bytes]))
        for entry in directory.entries
    ]
    if data.draw(st.booleans()):
        head = encode_directory(
            topic_id=TOPIC_ID, schema_version=1, rows=directory.rows, entries=entries
        )
    else:
        sealed = section[: directory.size]
        struct.pack_into(">I", sealed, 8, crc32c(sealed[12:]))
        head = bytes(sealed)
    log[HEADER_BYTES:] = head + section[directory.size :]
    seal(log, 0, read_header(log))
    for framed in (False, True):
        try:
            source = frames_of(memoryview(log), PLAN, SCHEMA) if framed else log
            table_of(decoded(source, SCHEMA, PLAN, framed=framed), PLAN).validate(full=True)
        except KafkaError as error:
            assert "\n" not in str(error) and len(str(error)) < 600
    try:
        as_json_batches(memoryview(log), read_header(log), SCHEMA)
    except KafkaError as error:
        assert "\n" not in str(error)


def test_batches_of_plain_records_are_no_rows_of_a_typed_topic():
    from storage_engine.protocol.records.record_encoder import encode_batches

    (batch,) = encode_batches(pa.array([b"{}"]))
    with pytest.raises(CorruptRecordError, match="plain records, but its topic is typed"):
        decoded(batch.data, SCHEMA)


def test_a_producer_set_on_a_batch_keeps_it_whole_for_readers_of_some_columns():
    log = bytearray(small_log())
    patch_producer(log, 0, producer_id=4, producer_epoch=1, base_sequence=9, transactional=True)
    read_plan = plan(SCHEMA, ["s"])
    data = frames_of(memoryview(log), read_plan, SCHEMA)
    found = table_of(decoded(data, SCHEMA, read_plan, framed=True), read_plan)
    assert comparable(found.to_pylist()) == [{"s": "text 0"}, {"s": "text 1"}]
