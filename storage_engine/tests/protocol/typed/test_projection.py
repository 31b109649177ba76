"""Projected answers: what is in them, and how much."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError, InvalidRequestError
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.core.typed.topic_schema import ColumnSpec
from storage_engine.protocol.records.control_record import encode_marker
from storage_engine.protocol.records.record_batch import (
    empty_batch,
    iter_headers,
    patch,
    read_header,
)
from storage_engine.protocol.typed.frames import PROJECTED, SKIPPED, WHOLE, iter_frames
from storage_engine.protocol.typed.projection import (
    WANT_FRAMES,
    WANT_STORED,
    TypedWant,
    decode_want,
    encode_want,
)
from storage_engine.protocol.typed.typed_decoder import plan
from storage_engine.tests.protocol.typed.in_memory import project
from storage_engine.tests.protocol.typed.logs import (
    decoded,
    encoded,
    frames_of,
    log_of,
    rows_from,
    schema_of,
    table_of,
)
from storage_engine.tests.sampling import examples

SCHEMA = schema_of("id BIGINT, big STRING, also BIGINT")


def log_with_marker():
    """Five batches of 10 rows each, the third followed by a control batch and an empty one."""
    rows = [{"id": n, "big": "x" * 1000, "also": -n} for n in range(10)]
    (batch,) = encoded(rows_from(SCHEMA, rows), SCHEMA)
    log = bytearray()
    offset = 0
    for number in range(5):
        data = bytearray(batch.data)
        patch(data, 0, base_offset=offset, leader_epoch=number)
        log += data
        offset += 10
        if number == 2:
            end = TransactionMarker(commits=True, coordinator_epoch=0)
            marker = bytearray(encode_marker(1, 0, end, timestamp_ms=5))
            patch(marker, 0, base_offset=offset, leader_epoch=2)
            log += marker + empty_batch(
                base_offset=offset + 1, next_offset=offset + 5, leader_epoch=2
            )
            offset += 5
    return memoryview(bytes(log))


def want(*column_ids, comparisons=()):
    return TypedWant(WANT_FRAMES, column_ids, comparisons)


def test_wanted_columns_are_sent_and_no_others():
    log = log_with_marker()
    answer = project(log, want(1), SCHEMA, limit_bytes=1 << 20)
    data = b"".join(answer.pieces)
    assert len(data) == answer.size < len(log) / 5 and answer.end_offset == 55
    frames = list(iter_frames(data))
    assert [frame.kind for frame in frames] == [PROJECTED] * 3 + [WHOLE] * 2 + [PROJECTED] * 2
    assert [frame.leader_epoch for frame in frames] == [0, 1, 2, 2, 2, 3, 4]
    assert b"x" * 70 not in data
    pieces = decoded(data, SCHEMA, plan(SCHEMA, ["id"]), framed=True)
    assert pieces[0].batch.column("id").to_pylist() == list(range(10)) * 5
    assert pieces[-1].next_offset == 55


def test_columns_are_slices_of_the_stored_bytes():
    log = log_with_marker()
    answer = project(log, want(1, 3), SCHEMA, limit_bytes=1 << 20)
    views = [piece for piece in answer.pieces if isinstance(piece, memoryview)]
    assert all(view.obj is log.obj for view in views)
    assert sum(map(len, views)) > answer.size * 0.85


def test_an_answer_keeps_to_its_limit_but_has_one_frame():
    log = log_with_marker()
    whole = project(log, want(1), SCHEMA, limit_bytes=1 << 20).size
    for limit in range(0, whole + 100, 97):
        answer = project(log, want(1), SCHEMA, limit_bytes=limit)
        frames = list(iter_frames(b"".join(answer.pieces)))
        assert frames and (answer.size <= limit or len(frames) == 1)
        assert frames[-1].next_offset == answer.end_offset
        rest = project(log, want(1), SCHEMA, limit_bytes=limit)
        assert rest.end_offset == answer.end_offset


@settings(max_examples=examples(100), deadline=None)
@given(
    limit=st.integers(0, 4000),
    least=st.integers(0, 12),
    column_ids=st.sets(st.sampled_from([1, 2, 3, 77])),
)
def test_reading_on_from_each_answer_gives_all_rows(limit, least, column_ids):
    log = log_with_marker()
    wanted = want(*column_ids, comparisons=(Comparison(1, Operator.GE, (least,)),))
    positions = {header.base_offset: at for at, header in iter_headers(log)}
    offset, frames = 0, list(iter_frames(b""))
    while offset < 55:
        answer = project(log[positions[offset] :], wanted, SCHEMA, limit_bytes=limit)
        assert answer.end_offset > offset
        frames += iter_frames(b"".join(answer.pieces))
        offset = answer.end_offset
    covered = [(frame.base_offset, frame.next_offset) for frame in frames]
    assert covered[0][0] == 0 and covered[-1][1] == 55
    assert all(one[1] == other[0] for one, other in pairwise(covered))
    assert any(frame.kind == SKIPPED for frame in frames) == (least > 9)


def test_a_header_that_is_damaged_is_noticed_before_its_batch_is_skipped():
    log = bytearray(log_with_marker())
    last = [at for at, _ in iter_headers(log)][-1]
    log[last + 26] ^= 1  # the last offset delta
    wanted = want(1, comparisons=(Comparison(1, Operator.GE, (10,)),))
    # What is sound comes first; who reads on there gets the error.
    assert 0 < project(memoryview(log), wanted, SCHEMA, limit_bytes=1 << 20).end_offset <= 45
    with pytest.raises(CorruptRecordError, match="at offset 45 is damaged: the CRC of its header"):
        project(memoryview(log)[last:], wanted, SCHEMA, limit_bytes=1 << 20)


def test_offsets_that_overlap_are_damage():
    log = bytearray(log_with_marker())
    log[26] ^= 0x10
    wanted = want(1, comparisons=(Comparison(1, Operator.GE, (10,)),))
    with pytest.raises(CorruptRecordError, match="its offsets begin before"):
        project(memoryview(log), wanted, SCHEMA, limit_bytes=1 << 20)


def test_a_damaged_directory_is_noticed_by_the_broker():
    log = bytearray(log_with_marker())
    log[61 + 50] ^= 1
    with pytest.raises(CorruptRecordError, match="offset 0 is damaged: the directory"):
        project(memoryview(log), want(1), SCHEMA, limit_bytes=1 << 20)


@pytest.mark.parametrize(
    "wanted",
    [
        TypedWant(WANT_STORED),
        want(),
        want(1, 5, 2000),
        want(*range(1, 1900)),
        want(3, comparisons=(Comparison(1, Operator.EQ, ("x",)),)),
    ],
)
def test_a_want_comes_back_from_its_bytes(wanted):
    assert decode_want(encode_want(wanted)) == wanted


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "in a way that is unknown"),
        (b"\x00\x00", "in a way that is unknown"),
        (b"\x02\x00", "in a way that is unknown"),
        (b"\x01", "in a way that is unknown"),
        (b"\x01\x02\x00\x00\x00\x01", "cut off"),
        (b"\x01\x02\x00\x00\x00\x01\x00\x00\x00\x01", "a column twice"),
        (b"\x01\xff\xff\x01", "more than 2004 columns"),
        (b"\x01\xff\x7f", "more than 2004 columns"),
        (b"\x01\x00\x01", "a filter is cut off"),
    ],
)
def test_a_malformed_want_is_refused(data, message):
    with pytest.raises(InvalidRequestError, match=message):
        decode_want(data)


def test_frames_need_no_schema_to_be_followed():
    log = log_with_marker()
    data = frames_of(log, plan(SCHEMA, ["id"]), SCHEMA)
    headers = [frame.header for frame in iter_frames(data)]
    assert headers == [read_header(log, at) for at, _ in iter_headers(log)]
    assert table_of(decoded(log, SCHEMA, plan(SCHEMA, ["id"])), plan(SCHEMA, ["id"])) == table_of(
        decoded(data, SCHEMA, plan(SCHEMA, ["id"]), framed=True), plan(SCHEMA, ["id"])
    )


def test_batches_that_can_not_match_are_not_sent():
    schema = schema_of("id BIGINT, text STRING")
    rows = rows_from(schema, [{"id": n, "text": "x" * 100} for n in range(1000)])
    log = log_of(encoded(rows, schema, batch_bytes=5000))
    batches = len(list(iter_headers(log)))
    read_plan = plan(schema, filter=[Comparison(1, Operator.IN, (500, 510))])
    data = frames_of(log, read_plan, schema)
    frames = list(iter_frames(data))
    assert [frame.kind for frame in frames] == [SKIPPED, PROJECTED, SKIPPED] and batches > 10
    assert len(data) < len(log) / 8
    assert frames[0].next_offset == frames[1].base_offset
    assert frames[-1].next_offset == 1000 and frames[-1].leader_epoch == 3
    found = table_of(decoded(data, schema, read_plan, framed=True), read_plan)
    assert found.column("id").to_pylist() == [500, 510]


def test_batches_of_a_version_that_the_broker_does_not_know_yet_are_sent():
    schema = schema_of("id BIGINT")
    later = schema.evolved(
        [ColumnSpec("id", types.IntegerColumn(64)), ColumnSpec("n", types.StringColumn())]
    )
    log = log_of(encoded(rows_from(later, [{"id": 1}]), later))
    read_plan = plan(later, filter=[Comparison(1, Operator.EQ, (2,))])
    assert [frame.kind for frame in iter_frames(frames_of(log, read_plan, schema))] == [PROJECTED]
    assert [frame.kind for frame in iter_frames(frames_of(log, read_plan, later))] == [SKIPPED]
