"""The short ways of reading and writing typed batches, beside the long ones: each takes what it
knows, gives the same as the long way, and leaves everything else to it.
"""

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError, KafkaError
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.protocol.records.record_batch import HEADER_BYTES, read_header, seal
from storage_engine.protocol.typed.arrays.ipc_message import (
    column_kind,
    number_width,
    read_message,
    write_message,
)
from storage_engine.protocol.typed.arrays.plain_numbers import (
    find_numbers,
    joined_numbers,
)
from storage_engine.protocol.typed.directory import (
    encode_directory,
    read_directory,
)
from storage_engine.protocol.typed.frames import frame_bounds
from storage_engine.protocol.typed.typed_decoder import TypedRows, iter_typed_decoded, plan
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
from storage_engine.tests.sampling import ALL_FAULTS, examples

NUMBERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.duration("us"),
    pa.decimal128(38, 3),
]
OTHERS = [
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.list_(pa.int64()),
    pa.struct([("a", pa.int64())]),
    pa.map_(pa.string(), pa.int64()),
]


def numbers(kind, count):
    data = np.arange(count * number_width(kind)).astype(np.uint8)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def message_of(array) -> memoryview:
    return memoryview(write_message(array)).cast("B")


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("count", [1, 3, 8, 1001])
def test_numbers_are_found_in_what_arrow_writes(kind, count):
    width = number_width(kind)
    whole = numbers(kind, count + 70)
    for start in (0, 1, 5):
        array = whole.slice(start, count)
        # The bits, as there are NaNs among the floats.
        expected = array.view(pa.binary(width)).to_pylist()
        found = find_numbers(message_of(array), width, count)
        assert found is not None
        joined = joined_numbers([found, found.part(0, 1)], kind)
        assert joined.view(pa.binary(width)).to_pylist() == expected + expected[:1]


def test_only_numbers_without_nulls_go_the_short_way():
    assert not any(map(number_width, OTHERS))
    assert find_numbers(message_of(pa.array([1, None, 3])), 8, 3) is None
    for others in (pa.array([1, 2]), pa.array([1, 2, 3], pa.int32()), pa.array([1, 2, 3, 4])):
        assert find_numbers(message_of(others), 8, 3) is None
    assert find_numbers(message_of(pa.array([1, 2, 3]))[:50], 8, 3) is None


@settings(max_examples=examples(2000), deadline=None)
@given(data=st.data())
def test_what_the_short_ways_take_of_damaged_messages_arrow_takes_too(data):
    """Numbers that are found are those that Arrow finds."""
    array = data.draw(
        st.sampled_from(
            [pa.array([7, 8, 9]), pa.array(["a", "bc", None]), pa.array([[1], [], None])]
        )
    )
    changed = bytearray(message_of(array))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(changed) - 1))
        changed[position] = data.draw(st.integers(0, 255))
    found = find_numbers(memoryview(changed), 8, 3)
    if found is not None:
        read = read_message(pa.py_buffer(bytes(changed)), column_kind(array.type))
        read.validate(full=True)
        assert read.equals(found.in_place(array.type)) and len(read) == 3


SCHEMA = schema_of("id BIGINT NOT NULL, s STRING, d DOUBLE, a ARRAY<STRING>, p DECIMAL(9,2)")


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("framed", [False, True])
def test_rows_have_memory_of_their_own(batches, framed):
    """Or a few rows that somebody keeps would keep a whole answer; and it is aligned."""
    rows = rows_from(SCHEMA, [{"id": n, "s": f"t{n}", "d": n / 7, "a": ["x"]} for n in range(99)])
    read_plan = plan(SCHEMA)
    log = log_of(encoded(rows, SCHEMA) * batches)
    data = np.frombuffer(frames_of(log, read_plan, SCHEMA) if framed else log, np.uint8)
    start = data.__array_interface__["data"][0]
    (piece,) = decoded(memoryview(data), SCHEMA, read_plan, framed=framed)
    assert len(piece) == 99 * batches
    for column in piece.batch.columns:
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                assert not start <= buffer.address < start + len(data)
                assert not buffer.address % 8


def test_offsets_and_times_are_those_of_the_rows_that_are_left():
    rows = rows_from(SCHEMA, [{"id": n, "d": float(n % 3)} for n in range(10)])
    matching = [Comparison(3, Operator.EQ, (1.0,))]
    read_plan = plan(SCHEMA, ["id"], ["_timestamp"], matching)
    times = pa.array([100 + n for n in range(10)])
    log = log_of([*encoded(rows, SCHEMA), *encoded(rows, SCHEMA, timestamps=times)], 5)
    (piece,) = decoded(log, SCHEMA, read_plan, start_offset=7)
    assert piece.offsets.to_pylist() == [9, 12, 16, 19, 22]
    found = piece.batch.column("_timestamp").cast(pa.int64()).to_pylist()
    assert found[2:] == [101_000, 104_000, 107_000]


def test_batches_that_do_not_follow_one_another_keep_their_offsets():
    rows = rows_from(SCHEMA, [{"id": n} for n in range(3)])
    first, second = encoded(rows, SCHEMA), encoded(rows, SCHEMA)
    log = bytes(log_of(first, 10)) + bytes(log_of(second, 20))
    (piece,) = decoded(log, SCHEMA)
    assert piece.offsets.to_pylist() == [10, 11, 12, 20, 21, 22]


def test_a_column_that_is_given_and_compared_is_loaded_once():
    read_plan = plan(SCHEMA, ["id", "d"], filter=[Comparison(3, Operator.GE, (0.5,))] * 2)
    assert [each.column.name for each in read_plan.loaded] == ["id", "d"]
    rows = rows_from(SCHEMA, [{"id": n, "d": float(n)} for n in range(3)])
    (piece,) = decoded(log_of(encoded(rows, SCHEMA)), SCHEMA, read_plan)
    assert piece.batch.to_pylist() == [{"id": 1, "d": 1.0}, {"id": 2, "d": 2.0}]


def test_a_decimal_beyond_its_type_is_refused_on_the_short_way():
    schema = schema_of("p DECIMAL(9,2)")
    small, large = (
        pa.Array.from_buffers(
            pa.decimal128(9, 2), 1, [None, pa.py_buffer(number.to_bytes(16, "little"))]
        )
        for number in (12, 10**12)
    )
    log = bytearray(log_of(encoded(pa.record_batch([small], ["p"]), schema)))
    at = bytes(log).rindex(bytes(write_message(small))[-16:])
    log[at : at + 16] = memoryview(large.buffers()[1])
    section = bytearray(log)[HEADER_BYTES:]
    (entry,) = read_directory(section).entries
    block = section[len(section) - entry.stored_bytes :]
    head = encode_directory(
        topic_id=TOPIC_ID, schema_version=1, rows=1, entries=[entry._replace(crc=crc32c(block))]
    )
    log[HEADER_BYTES:] = head + block
    seal(log, 0, read_header(log))
    for data in (log, frames_of(memoryview(log), plan(schema), schema)):
        with pytest.raises(CorruptRecordError, match="Arrow says: Decimal value"):
            decoded(data, schema, framed=data is not log)


def test_no_flipped_byte_of_many_frames_gives_other_values():
    rows = rows_from(SCHEMA, [{"id": n, "s": f"t{n}", "d": n / 7, "a": ["x"]} for n in range(3)])
    read_plan = plan(SCHEMA, ["s"], ["_offset"])
    log = log_of(encoded(rows, SCHEMA) * 6)
    data = frames_of(log, read_plan, SCHEMA)
    expected = table_of(decoded(data, SCHEMA, read_plan, framed=True), read_plan)
    assert expected.num_rows == 3 * 6
    for position in range(0, len(data), 1 if ALL_FAULTS else 5):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        try:
            found = table_of(decoded(changed, SCHEMA, read_plan, framed=True), read_plan)
        except KafkaError:
            continue
        assert found.equals(expected), position


@pytest.mark.parametrize("damaged", [0, 3, 5])
def test_a_damaged_column_among_many_frames_is_named(damaged):
    rows = rows_from(SCHEMA, [{"id": n} for n in range(3)])
    read_plan = plan(SCHEMA, ["id"])
    log = log_of(encoded(rows, SCHEMA) * 6)
    data = bytearray(frames_of(log, read_plan, SCHEMA))
    ends = [end for _, end in frame_bounds(memoryview(data))]
    data[ends[damaged] - 1] ^= 1
    with pytest.raises(CorruptRecordError, match=rf"offset {3 * damaged} .* its column 1 does"):
        decoded(data, SCHEMA, read_plan, framed=True)


def test_frames_before_a_damaged_one_are_given(monkeypatch):
    monkeypatch.setattr("storage_engine.protocol.typed.typed_decoder.PIECE_BYTES", 1)
    rows = rows_from(SCHEMA, [{"id": n} for n in range(3)])
    read_plan = plan(SCHEMA, ["id"])
    data = bytearray(frames_of(log_of(encoded(rows, SCHEMA) * 6), read_plan, SCHEMA))
    fifth = [start for start, _ in frame_bounds(memoryview(data))][5]
    data[fifth + 5] ^= 1
    pieces = iter_typed_decoded(data, read_plan, framed=True, topic_schema=SCHEMA)
    assert sum(len(next(pieces)) for _ in range(5)) == 15
    with pytest.raises(CorruptRecordError, match="its CRC does not match"):
        next(pieces)


@pytest.mark.parametrize("piece_bytes", [1, 1 << 20], ids=["a piece each", "all in one piece"])
@pytest.mark.parametrize("damaged", [0, 1, 5])
def test_frames_before_one_whose_seal_is_wrong_are_given(monkeypatch, damaged, piece_bytes):
    monkeypatch.setattr("storage_engine.protocol.typed.typed_decoder.PIECE_BYTES", piece_bytes)
    rows = rows_from(SCHEMA, [{"id": n} for n in range(3)])
    read_plan = plan(SCHEMA, ["id"])
    data = bytearray(frames_of(log_of(encoded(rows, SCHEMA) * 6), read_plan, SCHEMA))
    ends = [end for _, end in frame_bounds(memoryview(data))]
    data[ends[damaged] - 1] ^= 1
    found: list[int] = []
    with pytest.raises(CorruptRecordError, match="its column 1 does not match"):
        for piece in iter_typed_decoded(data, read_plan, framed=True, topic_schema=SCHEMA):
            found += piece.offsets.to_pylist()
    assert found == list(range(3 * damaged))


OUTSIDE_CRC = {*range(8), *range(12, 16)}
"""Base offset and leader epoch, which the leader sets; and the CRC covers not itself."""


@pytest.mark.parametrize("is_last_damaged", [False, True])
def test_no_flipped_byte_on_the_brokers_disk_reaches_a_reader_of_many_frames(
    monkeypatch, is_last_damaged
):
    """A frame has a CRC of its own, which is right then: only the batch's tells."""
    monkeypatch.setattr("storage_engine.protocol.typed.typed_decoder.PIECE_BYTES", 1)
    rows = rows_from(SCHEMA, [{"id": n, "s": f"t{n}", "d": n / 7} for n in range(3)])
    read_plan = plan(SCHEMA, ["s"], ["_offset", "_timestamp"])
    log = log_of(encoded(rows, SCHEMA) * 5)
    for position in range(8, HEADER_BYTES):
        if position in OUTSIDE_CRC:
            continue
        changed = bytearray(log)
        changed[position] ^= 1 << position % 8
        given: list[TypedRows] = []
        with pytest.raises(KafkaError):  # either may
            data = bytearray(frames_of(memoryview(changed), read_plan, SCHEMA))
            if not data:
                raise CorruptRecordError("a length that grew: the batch is cut off")
            if is_last_damaged:
                data[[start for start, _ in frame_bounds(memoryview(data))][-1] + 5] ^= 1
            given.extend(iter_typed_decoded(data, read_plan, framed=True, topic_schema=SCHEMA))
        assert given == [], position
