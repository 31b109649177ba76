"""Damaged and hostile typed batches: an error of ours or the same values, never others, and never
more memory than a batch may take."""

import struct
import subprocess
import sys

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
from storage_engine.protocol.typed.arrays.ipc_message import (
    column_kind,
    read_message,
    write_message,
)
from storage_engine.protocol.typed.arrays.json_text import json_texts
from storage_engine.protocol.typed.column_codec import load_column
from storage_engine.protocol.typed.directory import (
    DICTIONARY,
    PLAIN,
    ColumnEntry,
    encode_directory,
    read_directory,
)
from storage_engine.protocol.typed.json_rows import as_json_batches
from storage_engine.protocol.typed.stored_rows import StoredRows
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.logs import (
    TOPIC_ID,
    decoded,
    encoded,
    frames_of,
    log_of,
    rows_from,
    schema_of,
    table_of,
)
from storage_engine.tests.protocol.typed.same_values import comparable
from storage_engine.tests.sampling import examples

SCHEMA = schema_of("id BIGINT NOT NULL, s STRING, d DOUBLE, a ARRAY<STRUCT<x: STRING>>", ["id"])
METADATA = ["_offset", "_timestamp", "_headers", "_deleted"]
PLAN = plan(SCHEMA, metadata=METADATA)
ONE_COLUMN = plan(SCHEMA, ["s"], ["_offset"], [Comparison(3, Operator.GE, (0.0,))])
LIMIT = 1 << 20


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


OUTSIDE_CRC = {*range(8), *range(12, 16)}
"""Base offset and leader epoch, which the leader sets, as in Kafka."""


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_no_flipped_byte_of_a_batch_gives_other_values(codec):
    log = small_log(codec)
    expected = table_of(decoded(log, SCHEMA, PLAN), PLAN)
    for position in range(len(log)):
        if position in OUTSIDE_CRC:
            continue
        changed = bytearray(log)
        changed[position] ^= 1 << position % 8
        try:
            found = table_of(decoded(changed, SCHEMA, PLAN), PLAN)
        except KafkaError:
            continue
        # A batch whose length grew is cut off: it is left out, as everywhere.
        assert found.equals(expected) or (8 <= position < 12 and not found.num_rows), position


@pytest.mark.parametrize("read_plan", [PLAN, ONE_COLUMN])
def test_no_flipped_byte_of_an_answer_gives_other_values(read_plan):
    data = frames_of(small_log(), read_plan, SCHEMA)
    expected = table_of(decoded(data, SCHEMA, read_plan, framed=True), read_plan)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        try:
            found = table_of(decoded(changed, SCHEMA, read_plan, framed=True), read_plan)
        except KafkaError:
            continue
        # In a column that is sent, but not read.
        assert found.equals(expected), position


def test_no_flipped_byte_on_the_brokers_disk_reaches_a_reader_of_some_columns():
    log = small_log()
    read_plan = plan(SCHEMA, ["s"], ["_offset", "_timestamp"])
    expected = table_of(decoded(log, SCHEMA, read_plan), read_plan)
    for position in range(len(log)):
        if position in OUTSIDE_CRC:
            continue
        changed = bytearray(log)
        changed[position] ^= 1 << position % 8
        try:
            data = frames_of(memoryview(changed), read_plan, SCHEMA)
            found = table_of(decoded(data, SCHEMA, read_plan, framed=True), read_plan)
        except KafkaError:
            continue
        cut_off = 8 <= position < 12 and not found.num_rows
        assert found.equals(expected) or cut_off, position


@settings(max_examples=examples(400), deadline=None)
@given(data=st.data())
def test_hostile_batches_with_right_crcs_give_errors_or_valid_rows(data):
    """What no CRC tells: the attacker has computed them, too."""
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


def entry_for(block, *, rows=1, raw_bytes=None, codec=0, encoding=PLAIN, nulls=0):
    raw = len(block) if raw_bytes is None else raw_bytes
    return ColumnEntry(1, 0, len(block), raw, 0, nulls, codec, encoding, 0, b"", b"")


def load(block, kind, rows=1, **options):
    entry = entry_for(block, rows=rows, **options)
    return load_column(block, entry, column_kind(kind), rows, max_bytes=LIMIT)


def test_buffers_that_arrow_compressed_are_refused_before_it_reads_them():
    batch = pa.RecordBatch.from_arrays([pa.array(["a" * 5000] * 100)], names=["c"])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    block = bytes(reader.read_next_message().serialize())
    with pytest.raises(CorruptRecordError, match="compressed by Arrow"):
        load(block, pa.string(), rows=100)


def test_messages_that_are_no_record_batch_or_have_metadata_are_refused():
    array = pa.array([1, 2])
    schema_message = bytes(pa.schema([("c", pa.int64())]).serialize())
    with pytest.raises(CorruptRecordError, match="no record batch"):
        load(schema_message, pa.int64(), rows=2)
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata={"a": "b"})
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    with pytest.raises(CorruptRecordError, match="metadata of its own"):
        load(bytes(reader.read_next_message().serialize()), pa.int64(), rows=2)


def test_a_message_has_nothing_behind_it_and_is_of_its_type():
    block = bytes(write_message(pa.array([1, 2])))
    assert load(block, pa.int64(), rows=2).to_pylist() == [1, 2]
    for changed in (block + b"\0" * 8, block[:-8], block[:6], b""):
        with pytest.raises(CorruptRecordError):
            load(changed, pa.int64(), rows=2)
    for kind in (pa.string(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])):
        with pytest.raises(CorruptRecordError):
            load(block, kind, rows=2)
    with pytest.raises(CorruptRecordError, match="2 values with 0 nulls, not 3 with 0"):
        load(block, pa.int64(), rows=3)
    two_columns = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "b"])
    with pytest.raises(CorruptRecordError):
        load(bytes(two_columns.serialize()), pa.int64())


def test_text_that_is_not_utf8_is_damage():
    block = bytes(write_message(pa.array([b"\xff\xfe"])))
    with pytest.raises(CorruptRecordError, match="UTF"):
        load(block, pa.string())


def test_a_compressed_column_is_as_large_as_its_entry_says():
    plain = bytes(write_message(pa.array([0] * 10_000)))
    block = bytes(pa.Codec("zstd").compress(plain))
    assert len(load(block, pa.int64(), rows=10_000, raw_bytes=len(plain), codec=4)) == 10_000
    for size in (len(plain) - 8, len(plain) + 8, 1):
        with pytest.raises(CorruptRecordError):
            load(block, pa.int64(), rows=10_000, raw_bytes=size, codec=4)
    with pytest.raises(CorruptRecordError):
        load(block, pa.int64(), rows=10_000, raw_bytes=len(plain), codec=3)


def dictionary_block(values, indices):
    first, second = bytes(write_message(values)), bytes(write_message(indices))
    return struct.pack(">i", len(first)) + first + second


def test_a_dictionary_stands_for_no_more_than_the_limit():
    long = pa.array(["x" * 10_000, "y"])
    many = pa.array([0] * 1000, pa.int32())
    with pytest.raises(CorruptRecordError, match="stands for 10000000 bytes, at most 1048576"):
        load(dictionary_block(long, many), pa.string(), rows=1000, encoding=DICTIONARY)
    few = pa.array([1] * 1000, pa.int32())
    assert len(load(dictionary_block(long, few), pa.string(), rows=1000, encoding=DICTIONARY))


@pytest.mark.parametrize(
    "block",
    [
        dictionary_block(pa.array(["a"]), pa.array([1], pa.int32())),
        dictionary_block(pa.array(["a"]), pa.array([-1], pa.int32())),
        dictionary_block(pa.array([None], pa.string()), pa.array([0], pa.int32())),
        dictionary_block(pa.array([], pa.string()), pa.array([0], pa.int32())),
        dictionary_block(pa.array(["a"]), pa.array([0], pa.int32()))[:-8],
        b"\x7f\xff\xff\xff" + bytes(100),
        b"\xff\xff\xff\xff" + bytes(100),
        b"\0",
    ],
)
def test_a_damaged_dictionary_is_refused(block):
    with pytest.raises(CorruptRecordError):
        load(block, pa.string(), encoding=DICTIONARY)


def test_the_columns_of_a_batch_decompress_to_no_more_than_the_limit():
    schema = schema_of("a BIGINT, b BIGINT")
    rows = rows_from(schema, [{"a": 0, "b": 0}] * 10_000)
    log = log_of(encoded(rows, schema, compression=Codec.ZSTD))
    assert len(log) < 2000
    stored = StoredRows.of_batch(read_header(log), log, schema, max_bytes=100_000)
    assert stored.column(1) is not None
    with pytest.raises(CorruptRecordError, match="more than the 100000 bytes allowed"):
        stored.column(2)


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


def test_a_message_claims_no_memory_that_is_not_there():
    """Arrow gets sizes of buffers far beyond the message, and is to refuse them by itself."""
    block = bytearray(write_message(pa.array([1, 2, 3])))
    for position in range(8, len(block) - 24):
        for value in (0x7F, 0xFF):
            changed = bytearray(block)
            changed[position] = value
            try:
                read_message(pa.py_buffer(bytes(changed)), column_kind(pa.int64())).validate(
                    full=True
                )
            except (CorruptRecordError, pa.ArrowException):
                continue


def test_the_brokers_half_needs_neither_numpy_nor_pyarrow():
    modules = ("directory", "typed_batch", "frames", "projection", "filter_bytes", "crc_join")
    names = ", ".join(f"storage_engine.protocol.typed.{name}" for name in modules)
    code = f"import sys, {names}; print([n for n in ('numpy', 'pyarrow') if n in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_reading_and_writing_rows_does_not_import_pandas_or_the_table_of_kernels():
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "from uuid import UUID\n"
        "import pyarrow as pa\n"
        "from storage_engine.core.typed.ddl import parse_ddl\n"
        "from storage_engine.core.typed.topic_schema import new_schema\n"
        "from storage_engine.core.typed.comparisons import Comparison, Operator\n"
        "from storage_engine.protocol.typed.typed_encoder import iter_typed\n"
        "from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan\n"
        "schema = new_schema(parse_ddl('id BIGINT, m MAP<STRING, ARRAY<INT>>, s STRING'))\n"
        "ids = pa.Array.from_buffers(pa.int64(), 100, [None, pa.py_buffer(bytes(800))])\n"
        "rows = pa.RecordBatch.from_arrays([ids], names=['id'])\n"
        "batches = list(iter_typed(rows, schema, schema.latest, UUID(int=1)))\n"
        "read = plan(schema, filter=[Comparison(1, Operator.IN, (0, 5))])\n"
        "found = iter_typed_decoded(\n"
        "    batches[0].data, read, framed=False, topic_schema=schema)\n"
        "assert [len(piece) for piece in found] == [100]\n"
        "print('pyarrow.compute' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("False\n", 0), run.stderr


def test_buffers_that_end_with_a_part_of_a_number_are_read_or_refused():
    """Arrow takes them for valid."""
    column_type = schema_of("a ARRAY<STRING>").latest.columns[0].type
    array = pa.array([["a", "b"], None, []], pa.list_(pa.string()))
    block = bytes(write_message(array))
    accepted = 0
    for position in range(8, 8 + struct.unpack_from("<I", block, 4)[0]):
        for change in (1, 5, 255):
            changed = bytearray(block)
            changed[position] = (changed[position] + change) % 256
            entry = entry_for(changed, nulls=1)
            try:
                found = load_column(
                    bytes(changed), entry, column_kind(array.type), 3, max_bytes=LIMIT
                )
            except CorruptRecordError:
                continue
            accepted += 1
            json_texts(found, column_type)
    assert accepted > 10
