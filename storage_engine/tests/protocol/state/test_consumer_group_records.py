"""The records of consumer groups as bytes: Kafka's own forms, and damage."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.groups.consumer.records import (
    ClassicMemberRecord,
    ConsumerGroupKey,
    ConsumerGroupRecord,
    ConsumerMemberKey,
    ConsumerMemberRecord,
    CurrentAssignmentKey,
    CurrentAssignmentRecord,
    MemberState,
    PartitionMetadataKey,
    PartitionMetadataRecord,
    PatternKey,
    PatternRecord,
    TargetKey,
    TargetMemberKey,
    TargetMemberRecord,
    TargetRecord,
)
from storage_engine.protocol.state.group_records import (
    decode_key,
    decode_record,
    encode_key,
    encode_record,
)
from storage_engine.tests.core.groups.consumer import consumer_records

T, U = UUID(int=(1 << 64) + 2), UUID("11223344-5566-7788-99aa-bbccddeeff00")
T_HEX, U_HEX = "00000000000000010000000000000002", "112233445566778899aabbccddeeff00"
GROUP, MEMBER, TARGET = ConsumerGroupKey("g"), ConsumerMemberKey("g", "m"), TargetKey("g")
TARGET_MEMBER, CURRENT = TargetMemberKey("g", "m"), CurrentAssignmentKey("g", "m")
PATTERN = PatternKey("g", "a.*")

FORMS = {
    "group": (
        GROUP,
        "0003 0001 67",
        ConsumerGroupRecord(epoch=7, metadata_hash=-2),
        "0000 00000007 01 00 08 fffffffffffffffe",
    ),
    "group of Kafka 4.0": (
        GROUP,
        "0003 0001 67",
        ConsumerGroupRecord(epoch=7),
        "0000 00000007 00",
    ),
    "member": (
        MEMBER,
        "0005 0001 67 0001 6d",
        ConsumerMemberRecord(
            instance_id="i",
            rack_id="r",
            client_id="c",
            client_host="/h",
            topics=frozenset({"u", "t"}),
            pattern="a.*",
            rebalance_timeout_ms=300_000,
            assignor="range",
        ),
        "0000 0269 0272 0263 032f68 03 0274 0275 04612e2a 000493e0 0672616e6765 00",
    ),
    "member with nothing": (
        MEMBER,
        "0005 0001 67 0001 6d",
        ConsumerMemberRecord(client_id="c", client_host="/h"),
        "0000 00 00 0263 032f68 01 00 ffffffff 00 00",
    ),
    "member of the classic protocol": (
        MEMBER,
        "0005 0001 67 0001 6d",
        ConsumerMemberRecord(
            client_id="c",
            client_host="/h",
            topics=frozenset({"t"}),
            rebalance_timeout_ms=1_000,
            classic=ClassicMemberRecord(
                session_timeout_ms=45_000, protocols=(("range", b"\0\1"), ("sticky", b""))
            ),
        ),
        "0000 00 00 0263 032f68 02 0274 00 000003e8 00"
        " 01 00 1a 01 0000afc8 03 0672616e6765 03 0001 00 07737469636b79 01 00 00",
    ),
    "target": (TARGET, "0006 0001 67", TargetRecord(epoch=7), "0000 00000007 00"),
    "target of a member": (
        TARGET_MEMBER,
        "0007 0001 67 0001 6d",
        TargetMemberRecord(assignment={U: frozenset({1}), T: frozenset({300, 0})}),
        f"0000 03 {T_HEX} 03 00000000 0000012c 00 {U_HEX} 02 00000001 00 00",
    ),
    "no target": (
        TARGET_MEMBER,
        "0007 0001 67 0001 6d",
        TargetMemberRecord(assignment={}),
        "0000 01 00",
    ),
    "current assignment": (
        CURRENT,
        "0008 0001 67 0001 6d",
        CurrentAssignmentRecord(
            member_epoch=7,
            previous_epoch=6,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned={T: frozenset({0, 1})},
            pending_revocation={U: frozenset({2})},
        ),
        "0000 00000007 00000006 01"
        f" 02 {T_HEX} 03 00000000 00000001 00 02 {U_HEX} 02 00000002 00 00",
    ),
    "static member that has left for a moment": (
        CURRENT,
        "0008 0001 67 0001 6d",
        CurrentAssignmentRecord(
            member_epoch=-2,
            previous_epoch=6,
            state=MemberState.STABLE,
            assigned={},
            pending_revocation={},
        ),
        "0000 fffffffe 00000006 00 01 01 00",
    ),
    "pattern": (
        PATTERN,
        "0010 0001 67 0003 612e2a",
        PatternRecord(topics=frozenset({"a2", "a1"}), version=12, resolved_ms=1_700_000_000_000),
        "0000 03 036131 036132 000000000000000c 0000018bcfe56800 00",
    ),
}
"""Written by Apache Kafka 4.1.1's classes in kafka-group-coordinator."""


@pytest.mark.parametrize(("key", "raw_key", "record", "raw"), FORMS.values(), ids=FORMS)
def test_the_forms_are_those_of_kafka(key, raw_key, record, raw):
    assert encode_key(key) == bytes.fromhex(raw_key)
    assert decode_key(bytes.fromhex(raw_key)) == key
    assert encode_record(record) == bytes.fromhex(raw)
    assert decode_record(key, bytes.fromhex(raw)) == record


@given(consumer_records.entries(consumer_records.names))
def test_what_is_written_is_read(entry):
    key, record = entry
    assert decode_key(encode_key(key)) == key
    assert decode_record(key, encode_record(record)) == record


@given(consumer_records.entries(consumer_records.names), st.data())
def test_what_is_cut_off_or_too_long_is_damage(entry, data):
    key, record = entry
    if isinstance(key, PartitionMetadataKey):
        return
    raw = encode_record(record)
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    for damaged in (cut, raw + b"x"):
        with pytest.raises(CorruptRecordError, match="log of group offsets"):
            decode_record(key, damaged)


def test_of_partition_metadata_only_its_presence_is_read():
    """Kafka before 4.1 writes it: topic ids, names and numbers of partitions."""
    key = decode_key(bytes.fromhex("0004 0001 67"))
    assert key == PartitionMetadataKey("g")
    raw = bytes.fromhex(f"0000 02 {T_HEX} 0274 00000003 01 00 00")
    assert decode_record(key, raw) == PartitionMetadataRecord()
    assert encode_record(PartitionMetadataRecord()) == bytes.fromhex("0000 01 00")


@given(consumer_records.entries(consumer_records.names))
def test_values_of_later_versions_are_unreadable(entry):
    key, record = entry
    with pytest.raises(CorruptRecordError, match="its version 1 is not known"):
        decode_record(key, b"\0\1" + encode_record(record)[2:])


def test_a_state_of_a_later_version_is_unknown():
    raw = bytes.fromhex("0000 00000007 00000006 05 01 01 00")
    assert decode_record(CURRENT, raw).state is MemberState.UNKNOWN


def test_tagged_fields_of_later_versions_are_skipped():
    raw = bytes.fromhex("0000 00000007 01 05 02 abcd")
    assert decode_record(GROUP, raw) == ConsumerGroupRecord(epoch=7)
    raw = bytes.fromhex(f"0000 02 {T_HEX} 02 00000001 01 00 01 ff 00")
    assert decode_record(TARGET_MEMBER, raw) == TargetMemberRecord(assignment={T: frozenset({1})})


def test_topics_without_partitions_are_left_out():
    raw = bytes.fromhex(f"0000 02 {T_HEX} 01 00 00")
    assert decode_record(TARGET_MEMBER, raw) == TargetMemberRecord(assignment={})


@pytest.mark.parametrize(
    ("key", "raw", "reason"),
    [
        (GROUP, "0000 ffffffff 00", "no group or member has epoch -1"),
        (GROUP, "0000 40000001 00", "no group or member has epoch 1073741825"),
        (TARGET, "0000 7fffffff 00", "no group or member has epoch 2147483647"),
        (CURRENT, "0000 fffffffd 00000000 00 01 01 00", "no group or member has epoch -3"),
        (CURRENT, "0000 00000000 7fffffff 00 01 01 00", "has epoch 2147483647"),
        (
            TARGET_MEMBER,
            f"0000 03 {T_HEX} 02 00000001 00 {T_HEX} 02 00000002 00 00",
            f"topic {T} occurs twice",
        ),
        (TARGET_MEMBER, f"0000 02 {T_HEX} 02 ffffffff 00 00", f"topic {T} has no partition -1"),
        (TARGET_MEMBER, "0000 ffffffff0f 00", "an array says it has 4294967294 items"),
        (PATTERN, "0000 00 000000000000000c 0000018bcfe56800 00", "an array is null"),
        (
            MEMBER,
            "0000 00 00 0263 032f68 01 00 ffffffff 00 01 00 0b 01 00000000 02 0261 00 00 00",
            "the metadata of protocol 'a' is null",
        ),
    ],
)
def test_what_no_coordinator_could_go_on_from_is_damage(key, raw, reason):
    with pytest.raises(CorruptRecordError, match=reason):
        decode_record(key, bytes.fromhex(raw))


def test_the_same_record_has_the_same_bytes_whatever_the_order_of_its_sets():
    forms = [
        encode_record(TargetMemberRecord(assignment={topic: frozenset(order) for topic in topics}))
        for topics in ((T, U), (U, T))
        for order in ((0, 8, 16), (16, 8, 0))
    ]
    assert len(set(forms)) == 1
