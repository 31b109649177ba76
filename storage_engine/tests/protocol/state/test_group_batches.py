"""The group coordinator's log as record batches, with transactions."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.groups.consumer.records import (
    ConsumerGroupKey,
    ConsumerMemberKey,
    ConsumerMemberRecord,
    CurrentAssignmentKey,
    CurrentAssignmentRecord,
    MemberState,
    PatternKey,
    PatternRecord,
    TargetMemberKey,
    TargetMemberRecord,
)
from storage_engine.core.groups.records import GroupContent, OffsetKey, OffsetRecord
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.protocol.records.control_record import encode_marker
from storage_engine.protocol.records.record_batch import patch, patch_producer
from storage_engine.protocol.state.group_batches import (
    encode_entries,
    is_long,
    new_content,
    replay,
)
from storage_engine.protocol.state.group_records import encode_key
from storage_engine.protocol.state.state_batches import encode_raw
from storage_engine.tests.core.groups.consumer import consumer_records
from storage_engine.tests.core.groups.group_bench import content_of
from storage_engine.tests.sampling import examples

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

steps = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from([T0, T1]), st.integers(0, 99) | st.none(), st.sampled_from([-1, 1, 2])
        ),
        st.tuples(st.sampled_from([1, 2]), st.booleans()),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(steps, st.randoms(use_true_random=False))
def test_a_log_with_transactions_is_read_in_pieces_as_at_once(history, random):
    log, model = [], []
    for number, step in enumerate(history):
        if len(step) == 2:
            producer_id, commits = step
            batch = encode_marker(producer_id, 0, TransactionMarker(commits, 0), timestamp_ms=0)
            model.append(step)
        else:
            tp, offset, producer_id = step
            if offset is None:
                producer_id = -1  # tombstones are written outside transactions
            record = None if offset is None else OffsetRecord(offset=offset, commit_ms=0)
            key = OffsetKey("g", tp)
            ((_, batch),) = encode_entries([(key, record)], now_ms=0, part_bytes=1 << 20)
            if producer_id > 0:
                patch_producer(
                    batch,
                    0,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=0,
                    transactional=True,
                )
            model.append((key, record, producer_id if producer_id > 0 else None))
        patch(batch, 0, base_offset=number, leader_epoch=0)
        log.append(bytes(batch))
    at_once, in_pieces = new_content(), new_content()
    replay(b"".join(log), at_once)
    position = 0
    while position < len(log):
        end = random.randint(position + 1, len(log))
        replay(b"".join(log[position:end]), in_pieces)
        position = end
    expected: GroupContent = content_of(model)
    assert at_once == in_pieces == expected


def consumer_log(entries, random):
    """The log of these entries, in batches of any size."""
    log = []
    while entries:
        end = random.randint(1, len(entries))
        ((_, batch),) = encode_entries(entries[:end], now_ms=0, part_bytes=1 << 24)
        log.append(bytes(batch))
        entries = entries[end:]
    return b"".join(log)


ids = st.sampled_from(["a", "b"])
some = consumer_records.entries(ids)
histories = st.lists(some | st.tuples(some.map(lambda entry: entry[0]), st.none()), max_size=30)


@settings(max_examples=examples(300), deadline=None)
@given(histories, st.randoms(use_true_random=False))
def test_consumer_groups_are_read_back_as_they_were_written(history, random):
    content = new_content()
    assert replay(consumer_log(history, random), content) == []
    expected = content_of([(key, record, None) for key, record in history])
    assert content == expected


@pytest.mark.parametrize(
    ("key", "follows"),
    [
        (ConsumerGroupKey("g"), "is lost, it begins anew: "),
        (ConsumerMemberKey("g", "m"), "is lost, the member joins anew: "),
        (CurrentAssignmentKey("g", "m"), "is lost, the member joins anew: "),
        (PatternKey("g", "a.*"), "is lost, it is found anew: "),
    ],
)
def test_an_unreadable_record_of_a_consumer_group_is_told_and_kept_in_mind(key, follows):
    content = new_content()
    (trouble,) = replay(encode_raw([(encode_key(key), b"\0\1")], now_ms=0), content)
    assert f"the record of {key} at offset 0 {follows}" in trouble
    assert list(content.consumer_groups["g"].unreadable) == [key]


TOPICS = [UUID(int=number) for number in range(1, 2_001)]


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ({TOPICS[0]: frozenset(range(30_000))}, {TOPICS[0]: frozenset(range(1_000))}),
        (dict.fromkeys(TOPICS, frozenset({0})), dict.fromkeys(TOPICS[:100], frozenset({0}))),
    ],
)
def test_a_large_assignment_is_encoded_in_the_background(long, short):
    for assignment, expected in ((long, True), (short, False)):
        target = TargetMemberRecord(assignment=assignment)
        assert is_long((TargetMemberKey("g", "m"), target)) is expected
        for assigned, revoked in ((assignment, {}), ({}, assignment)):
            current = CurrentAssignmentRecord(
                member_epoch=1,
                previous_epoch=1,
                state=MemberState.STABLE,
                assigned=assigned,
                pending_revocation=revoked,
            )
            assert is_long((CurrentAssignmentKey("g", "m"), current)) is expected


def test_many_names_of_topics_are_encoded_in_the_background():
    for count in (1_000, 10_000):
        topics = frozenset(f"t{number}" for number in range(count))
        member = ConsumerMemberRecord(client_id="c", client_host="/h", topics=topics)
        assert is_long((ConsumerMemberKey("g", "m"), member)) is (count > 1_000)
        pattern = PatternRecord(topics=topics, version=1, resolved_ms=1)
        assert is_long((PatternKey("g", "a.*"), pattern)) is (count > 1_000)
    assert not is_long((ConsumerMemberKey("g", "m"), None))
