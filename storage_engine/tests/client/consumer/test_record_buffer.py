"""Records that are fetched and not handed out yet, and the positions that follow from them."""

import pyarrow as pa
import pytest

from storage_engine.client.consumer.record_buffer import RecordBuffer
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import patch
from storage_engine.protocol.records.record_encoder import encode_batches

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def fetched(tp: TopicPartition, first: int, count: int, next_offset: int) -> FetchedBatches:
    data = bytearray()
    if count:
        values = pa.array([b"%d" % n for n in range(first, first + count)], pa.binary())
        (batch,) = encode_batches(values, now_ms=1_000)
        data = bytearray(batch.data)
        patch(data, 0, base_offset=first, leader_epoch=0)
    return FetchedBatches(tp, memoryview(data), first, next_offset, 99, 99, 0, ())


@pytest.fixture
def buffer() -> RecordBuffer:
    """Of a two fetches, the second without a record, and of b one."""
    made = RecordBuffer()
    made.begin(A, 0)
    made.begin(B, 5)
    made.add(fetched(A, 0, 4, 6))
    made.add(fetched(B, 5, 2, 7))
    made.add(fetched(A, 6, 0, 9))
    return made


def test_positions_follow_what_was_handed_out_and_what_is_left_out(buffer):
    assert buffer.positions == {A: 0, B: 5}
    assert [r.offset for r in buffer.take_rows(3, ())] == [0, 1, 2]
    assert buffer.positions == {A: 3, B: 5}
    assert [(r.topic, r.offset, r.value) for r in buffer.take_rows(2, ())] == [
        ("a", 3, b"3"),
        ("b", 5, b"5"),
    ]
    assert buffer.positions == {A: 6, B: 6}
    assert [r.offset for r in buffer.take_rows(9, ())] == [6]
    assert buffer.positions == {A: 9, B: 7}
    assert buffer.take_rows(9, ()) == []


def test_rows_and_columns_may_be_taken_by_turns(buffer):
    buffer.take_rows(1, ())
    taken = [(tp, first, rows.num_rows) for tp, first, rows in buffer.take_batches(())]
    assert taken == [(A, 1, 3), (B, 5, 2)]
    assert buffer.positions == {A: 9, B: 7}


@pytest.mark.parametrize(
    "take", [lambda buffer: buffer.take_rows(9, ()), lambda buffer: buffer.take_batches(())]
)
def test_a_damaged_batch_is_told_behind_what_came_before_it_and_never_passed(take):
    buffer = RecordBuffer()
    buffer.begin(A, 0)
    damaged = fetched(A, 4, 3, 7)
    damaged.records[-1] ^= 1
    buffer.add(fetched(A, 0, 4, 4))
    buffer.add(damaged)
    assert len(take(buffer))
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            take(buffer)
        assert buffer.positions == {A: 4}


def test_what_is_paused_waits_and_what_is_sought_is_dropped(buffer):
    assert [r.topic for r in buffer.take_rows(9, {A})] == ["b", "b"]
    assert buffer.positions == {A: 0, B: 7}
    buffer.begin(A, 3)
    assert buffer.take_rows(9, ()) == []
    buffer.add(fetched(A, 3, 1, 4))
    assert [r.offset for r in buffer.take_rows(9, ())] == [3]
    buffer.drop(B)
    assert buffer.positions == {A: 4}
