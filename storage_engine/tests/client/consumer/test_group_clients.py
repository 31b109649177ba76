"""What members tell one another, how partitions are shared out, what a consumer has handed out."""

import contextlib
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_record import rows_of
from storage_engine.client.consumer.range_assignment import assign_ranges
from storage_engine.client.consumer.record_buffer import RecordBuffer
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.core.errors import ConfigError, CorruptRecordError
from storage_engine.core.groups.group import subscribed_topics
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from storage_engine.protocol.records.record_batch import patch
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
TOPICS = st.sets(st.text("abcé", min_size=1, max_size=4), max_size=4)


@given(
    st.dictionaries(st.text("mn", min_size=1, max_size=3), TOPICS, min_size=1, max_size=5),
    st.dictionaries(st.text("abcé", min_size=1, max_size=4), st.integers(0, 7)),
)
def test_each_partition_has_one_member_and_shares_are_even(subscriptions, counts):
    assigned = assign_ranges(subscriptions, counts)
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    every = [TopicPartition(t, n) for t in wanted for n in range(counts.get(t, 0))]
    assert sorted(tp for each in assigned.values() for tp in each) == sorted(every)
    for topic in wanted:
        members = sorted(m for m, topics in subscriptions.items() if topic in topics)
        shares = [[tp for tp in assigned[m] if tp.topic == topic] for m in members]
        assert all(len(more) - len(less) in (0, 1) for more, less in pairwise(shares))
        assert [tp for share in shares for tp in share] == sorted(
            tp for share in shares for tp in share
        )


@given(TOPICS)
def test_subscriptions_are_read_by_others(topics):
    encoded = encode_subscription(topics)
    assert subscribed_topics(encoded) == topics
    assert set(ConsumerProtocolSubscription.decode(encoded).topics) == topics


@given(st.sets(st.builds(TopicPartition, st.text("abcé", min_size=1), st.integers(0, 99))))
def test_assignments_are_read_by_others(partitions):
    encoded = encode_assignment(partitions)
    assert decode_assignment(encoded) == tuple(sorted(partitions))
    theirs = ConsumerProtocolAssignment.decode(encoded)
    assert {(tp.topic, tp.partition) for tp in theirs.partitions()} == partitions


USER_DATA_BYTES = 4
"""A length of -1, at the end of an assignment; nobody looks at it."""


@given(st.binary(max_size=40))
def test_any_bytes_are_an_assignment_or_told_to_be_none(data):
    with contextlib.suppress(CorruptRecordError):
        partitions = decode_assignment(data)
        assert set(decode_assignment(encode_assignment(set(partitions)))) == set(partitions)


@given(st.sets(st.builds(TopicPartition, st.text("abcé", min_size=1), st.integers(0, 99))))
def test_an_assignment_that_is_cut_off_is_told(partitions):
    encoded = encode_assignment(partitions)
    for length in range(1, len(encoded) - USER_DATA_BYTES):
        with pytest.raises(CorruptRecordError):
            decode_assignment(encoded[:length])


# --- what is handed out ---


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


CELLS = st.lists(st.one_of(st.none(), st.binary(max_size=5)), min_size=1, max_size=8)
HEADERS = st.lists(st.tuples(st.text(max_size=2), st.one_of(st.none(), st.binary(max_size=3))))


@settings(max_examples=20, deadline=None)
@given(CELLS, st.data())
def test_rows_are_what_the_columns_say(values, data):
    keys = data.draw(
        st.lists(CELLS.map(lambda c: c[0]), min_size=len(values), max_size=len(values))
    )
    headers = data.draw(st.lists(HEADERS, min_size=len(values), max_size=len(values)))
    rows = [[{"key": k, "value": v} for k, v in row] for row in headers]
    batches = encode_batches(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        pa.array(rows, HEADERS_TYPE),
        now_ms=7,
    )
    decoded = decode_batches([bytes(b.data) for b in batches], include_headers=True)
    made = rows_of(B, decoded)
    assert [(r.key, r.value, list(r.headers)) for r in made] == [
        (k, v, h) for k, v, h in zip(keys, values, headers, strict=True)
    ]
    assert {(r.topic, r.partition, r.timestamp_ms, r.timestamp_type) for r in made} == {
        ("b", 1, 7, 0)
    }
    assert [r.offset for r in made] == list(range(len(values)))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "x:1", "group.instance.id": "i"}, "needs a group.id"),
        ({"bootstrap.servers": "x:1", "enable.auto.commit": True}, "needs a group.id"),
        ({"bootstrap.servers": "x:1", "auto.offset.reset": "first"}, "one of earliest, latest"),
        ({"bootstrap.servers": "x:1", "group.ids": "g"}, "did you mean 'group.id'"),
        ({"bootstrap.servers": "x:1", "heartbeat.interval.ms": 60_000}, "less than session"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ConsumerConfig.of(settings)
