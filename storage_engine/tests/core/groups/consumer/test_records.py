"""The content of the log by consumer group. Compaction keeps the newest record of each key."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.groups.consumer.records import (
    ConsumerGroupContent,
    ConsumerGroupKey,
    ConsumerGroupRecord,
    ConsumerMemberKey,
    ConsumerMemberRecord,
    PartitionMetadataKey,
    PartitionMetadataRecord,
    TargetKey,
    TargetRecord,
)
from storage_engine.core.groups.records import GroupContent, GroupEntry, GroupKey, GroupRecord
from storage_engine.tests.core.groups.consumer import consumer_records
from storage_engine.tests.sampling import examples

often = settings(max_examples=examples(1_000), deadline=None)
classic = GroupRecord(
    protocol_type="consumer", generation=1, protocol=None, leader=None, state_ms=0
)
UNREADABLE = UnreadableRecord("its version 9 is not known")
GROUP, OTHER = ConsumerGroupKey("g"), ConsumerGroupKey("other")
MEMBER = ConsumerMemberKey("g", "m")
member = ConsumerMemberRecord(client_id="c", client_host="/h", topics=frozenset({"t"}))

ids = st.sampled_from(["a", "b"])
some = consumer_records.entries(ids) | st.tuples(st.builds(GroupKey, ids), st.just(classic))
keys = some.map(lambda entry: entry[0])
histories = st.lists(
    some | st.tuples(keys, st.none()) | st.tuples(keys, st.just(UNREADABLE)), max_size=30
)


def content_of(log: list[GroupEntry]) -> GroupContent:
    content = GroupContent()
    for key, record in log:
        content.put(key, record, None)
    content.next_order = 0
    return content


@often
@given(histories)
def test_the_newest_record_of_each_key_counts(log):
    content = content_of(log)
    found = {
        key: record
        for group_id, group in content.consumer_groups.items()
        for key, record in group.entries(group_id)
    }
    newest = {key: record for key, record in log if not isinstance(key, GroupKey)}
    assert found == {key: record for key, record in newest.items() if record is not None}
    assert sum(map(len, content.consumer_groups.values())) == len(found)
    assert all(map(len, content.consumer_groups.values()))
    assert len(content) == len(found) + len(content.groups)


@often
@given(histories, st.data())
def test_compaction_at_any_point_leaves_the_same_content(log, data):
    end = data.draw(st.integers(0, len(log)))
    last = {key: place for place, (key, _) in enumerate(log)}
    drops_tombstones = data.draw(st.booleans())
    compacted = [
        (key, record)
        for place, (key, record) in enumerate(log)
        if place >= end or (last[key] == place and not (record is None and drops_tombstones))
    ]
    assert content_of(compacted) == content_of(log)


@pytest.mark.parametrize("key", [GROUP, MEMBER])
def test_a_key_whose_newest_record_is_unreadable_has_none_and_is_named(key):
    record = {GROUP: ConsumerGroupRecord(epoch=1), MEMBER: member}[key]
    group = ConsumerGroupContent()
    group.put(key, record)
    group.put(key, UNREADABLE)
    assert (group.group, group.members) == (None, {})
    assert group.unreadable == dict(group.entries("g")) == {key: UNREADABLE}
    group.put(key, record)
    assert group.unreadable == {}
    assert dict(group.entries("g")) == {key: record}


def test_a_group_without_any_record_is_gone():
    content = content_of([(GROUP, ConsumerGroupRecord(epoch=1)), (OTHER, None), (GROUP, None)])
    assert content.consumer_groups == {}


def test_a_classic_group_of_the_same_name_stands_beside():
    content = content_of([(GroupKey("g"), classic), (GROUP, ConsumerGroupRecord(epoch=1))])
    content.put(GroupKey("g"), None, None)
    assert content.groups == {}
    assert content.consumer_groups["g"].group == ConsumerGroupRecord(epoch=1)


def test_partition_metadata_counts_until_its_tombstone():
    key = PartitionMetadataKey("g")
    group = ConsumerGroupContent()
    group.put(key, PartitionMetadataRecord())
    assert list(group.entries("g")) == [(key, PartitionMetadataRecord())]
    group.put(key, None)
    assert not group.has_partition_metadata


def test_a_record_of_another_kind_is_our_own_fault():
    with pytest.raises(AssertionError, match="of another kind"):
        ConsumerGroupContent().put(GROUP, TargetRecord(epoch=1))
    with pytest.raises(AssertionError):
        GroupContent().put(TargetKey("g"), classic, None)
