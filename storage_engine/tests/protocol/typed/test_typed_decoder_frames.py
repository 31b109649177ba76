"""Answers of many frames: what is whole is given, and what is damaged is named."""

import pytest

from storage_engine.core.errors import CorruptRecordError, KafkaError
from storage_engine.protocol.records.record_batch import HEADER_BYTES
from storage_engine.protocol.typed.frames import frame_bounds
from storage_engine.protocol.typed.typed_decoder import TypedRows, iter_typed_decoded, plan
from storage_engine.tests.protocol.typed.logs import (
    OUTSIDE_CRC,
    check_flipped_bytes,
    decoded,
    encoded,
    frames_of,
    log_of,
    rows_from,
    schema_of,
    table_of,
)
from storage_engine.tests.sampling import ALL_FAULTS

SCHEMA = schema_of("id BIGINT NOT NULL, s STRING, d DOUBLE, a ARRAY<STRING>, p DECIMAL(9,2)")


ONE_COLUMN = plan(SCHEMA, ["id"])


def six_frames():
    """Six frames of three rows each; where each begins, and where it ends."""
    rows = rows_from(SCHEMA, [{"id": n} for n in range(3)])
    data = bytearray(frames_of(log_of(encoded(rows, SCHEMA) * 6), ONE_COLUMN, SCHEMA))
    starts, ends = zip(*frame_bounds(memoryview(data)), strict=True)
    return data, starts, ends


def test_no_flipped_byte_of_many_frames_gives_other_values():
    rows = rows_from(SCHEMA, [{"id": n, "s": f"t{n}", "d": n / 7, "a": ["x"]} for n in range(3)])
    read_plan = plan(SCHEMA, ["s"], ["_offset"])
    answer = frames_of(log_of(encoded(rows, SCHEMA) * 6), read_plan, SCHEMA)
    read = lambda data: table_of(decoded(data, SCHEMA, read_plan, framed=True), read_plan)  # noqa: E731
    assert read(answer).num_rows == 3 * 6
    check_flipped_bytes(answer, read, range(0, len(answer), 1 if ALL_FAULTS else 5))


@pytest.mark.parametrize("damaged", [0, 3, 5])
def test_a_damaged_column_among_many_frames_is_named(damaged):
    data, _, ends = six_frames()
    data[ends[damaged] - 1] ^= 1
    with pytest.raises(CorruptRecordError, match=rf"offset {3 * damaged} .* its column 1 does"):
        decoded(data, SCHEMA, ONE_COLUMN, framed=True)


def test_frames_before_a_damaged_one_are_given(monkeypatch):
    monkeypatch.setattr("storage_engine.protocol.typed.typed_decoder.PIECE_BYTES", 1)
    data, starts, _ = six_frames()
    data[starts[5] + 5] ^= 1
    pieces = iter_typed_decoded(data, ONE_COLUMN, framed=True, topic_schema=SCHEMA)
    assert sum(len(next(pieces)) for _ in range(5)) == 15
    with pytest.raises(CorruptRecordError, match="its CRC does not match"):
        next(pieces)


@pytest.mark.parametrize("piece_bytes", [1, 1 << 20], ids=["a piece each", "all in one piece"])
@pytest.mark.parametrize("damaged", [0, 1, 5])
def test_frames_before_one_whose_seal_is_wrong_are_given(monkeypatch, damaged, piece_bytes):
    monkeypatch.setattr("storage_engine.protocol.typed.typed_decoder.PIECE_BYTES", piece_bytes)
    data, _, ends = six_frames()
    data[ends[damaged] - 1] ^= 1
    found: list[int] = []
    with pytest.raises(CorruptRecordError, match="its column 1 does not match"):
        for piece in iter_typed_decoded(data, ONE_COLUMN, framed=True, topic_schema=SCHEMA):
            found += piece.offsets.to_pylist()
    assert found == list(range(3 * damaged))


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
