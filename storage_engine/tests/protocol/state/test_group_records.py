"""The group coordinators' records as bytes: Kafka's own forms, and damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.groups.consumer_protocol import subscribed_topics
from storage_engine.core.groups.records import (
    GroupKey,
    GroupMemberRecord,
    GroupRecord,
    OffsetKey,
    OffsetRecord,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.state.group_batches import encode_entries, new_content, replay
from storage_engine.protocol.state.group_records import (
    GENERATION_MAX,
    decode_key,
    decode_record,
    encode_key,
    encode_record,
)
from storage_engine.tests.core.groups.group_bench import subscription

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
names = st.text(max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)

offsets = st.builds(
    OffsetRecord, offset=int64s, leader_epoch=int32s, metadata=names, commit_ms=int64s
)

members = st.builds(
    GroupMemberRecord,
    member_id=names,
    instance_id=st.none() | names,
    client_id=names,
    client_host=names,
    rebalance_timeout_ms=int32s,
    session_timeout_ms=int32s,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)

groups = st.builds(
    GroupRecord,
    protocol_type=names,
    generation=st.integers(0, GENERATION_MAX),
    protocol=st.none() | names,
    leader=st.none() | names,
    state_ms=int64s,
    members=st.lists(
        members,
        max_size=3,
        unique_by=(
            lambda each: each.member_id,
            lambda each: object() if each.instance_id is None else each.instance_id,
        ),
    ).map(tuple),
)

entries = st.one_of(
    st.tuples(st.builds(GroupKey, names), groups),
    st.tuples(st.builds(OffsetKey, names, st.builds(TopicPartition, names, int32s)), offsets),
)


@given(entries)
def test_what_is_written_is_read(entry):
    key, record = entry
    assert decode_key(encode_key(key)) == key
    assert decode_record(key, encode_record(record)) == record


@given(entries, st.data())
def test_what_is_cut_off_or_too_long_is_damage(entry, data):
    key, record = entry
    raw = encode_record(record)
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    for damaged in (cut, raw + b"x"):
        with pytest.raises(CorruptRecordError, match="log of group offsets"):
            decode_record(key, damaged)


def test_the_forms_are_those_of_kafka():
    """As kafka-dump-log shows them: OffsetCommitKey 1, OffsetCommitValue 3, GroupMetadataKey 2."""
    key = OffsetKey("g", T1)
    assert encode_key(key) == bytes.fromhex("0001 0001 67 0001 74 00000001")
    value = OffsetRecord(offset=5, leader_epoch=2, metadata="m", commit_ms=7)
    raw = bytes.fromhex("0003 0000000000000005 00000002 0001 6d 0000000000000007")
    assert encode_record(value) == raw
    assert encode_key(GroupKey("g")) == bytes.fromhex("0002 0001 67")
    expiring = OffsetRecord(offset=5, commit_ms=7, expire_ms=9)
    raw = bytes.fromhex("0001 0000000000000005 0000 0000000000000007 0000000000000009")
    assert encode_record(expiring) == raw
    assert decode_record(key, raw) == expiring


@pytest.mark.parametrize(
    "raw",
    [
        "0000 0000000000000005 0001 6d 0000000000000007",
        "0002 0000000000000005 0001 6d 0000000000000007",
        # flexible, with a topic id that we don't know in a tagged field
        "0004 0000000000000005 ffffffff 02 6d 0000000000000007"
        " 01 00 10 00000000000000000000000000000001",
    ],
)
def test_other_versions_of_kafka_are_read(raw):
    read = decode_record(OffsetKey("g", T0), bytes.fromhex(raw))
    assert read == OffsetRecord(offset=5, metadata="m", commit_ms=7)


def _member(member_id: str, instance_id: str | None = None) -> GroupMemberRecord:
    return GroupMemberRecord(
        member_id=member_id,
        instance_id=instance_id,
        client_id="",
        client_host="",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        subscription=b"",
        assignment=b"",
    )


@pytest.mark.parametrize(
    ("generation", "members"),
    [
        (1, (_member("m"), _member("m", "i"))),
        (1, (_member("m", "i"), _member("n", "i"))),
        (-1, ()),
        (2**31 - 1, ()),
        (GENERATION_MAX + 1, (_member("m"),)),
    ],
)
def test_a_group_that_a_coordinator_could_not_go_on_from_begins_anew(generation, members):
    record = GroupRecord(
        protocol_type="consumer",
        generation=generation,
        protocol="range",
        leader="m",
        state_ms=0,
        members=members,
    )
    with pytest.raises(CorruptRecordError):
        decode_record(GroupKey("g"), encode_record(record))
    content = new_content()
    ((_, batch),) = encode_entries([(GroupKey("g"), record)], now_ms=0, part_bytes=1 << 20)
    (trouble,) = replay(batch, content)
    assert "it begins anew" in trouble
    assert not content.groups


def test_keys_of_later_versions_are_skipped():
    assert decode_key(b"\x00\x09abc") is None


def test_topics_of_a_subscription_that_is_damaged_are_not_known():
    raw = subscription("t", "other")
    assert subscribed_topics(raw) == frozenset({"t", "other"})
    for end in range(len(subscription("t", "other")) - 4):
        assert subscribed_topics(raw[:end]) is None
    assert subscribed_topics(b"\x00\x00\x00\x00\x00\x01\xff\xff") is None
