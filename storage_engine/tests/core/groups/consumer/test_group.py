"""A consumer group says who may commit and read, and counts what its records say."""

from dataclasses import replace

import pytest

from storage_engine.core.coordinator_log import PIECE
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer.records import (
    ConsumerGroupKey,
    ConsumerGroupRecord,
    MemberState,
    TargetKey,
    TargetRecord,
)
from storage_engine.core.groups.consumer.topics import Topics
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.events import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    ReadOffsets,
    RequestingMember,
)
from storage_engine.core.groups.records import OffsetRecord
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.core.groups.consumer.consumer_bench import ConsumerBench
from storage_engine.tests.core.groups.group_bench import G, content_of

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


def commit(bench, member_id="", epoch=-1, *, knows=True, producer=None):
    request = bench.ask(
        lambda request: CommitOffsets(
            request=request,
            group_id=G,
            caller=RequestingMember(member_id=member_id, generation=epoch),
            offsets={T0: OffsetRecord(offset=1, commit_ms=bench.at.wall_ms)},
            knows_epochs=knows,
            producer=producer,
            at=bench.at,
        )
    )
    return bench.error(request)


def read(bench, member_id="", epoch=-1):
    caller = RequestingMember(member_id=member_id, generation=epoch)
    request = bench.ask(
        lambda request: ReadOffsets(request=request, group_id=G, partitions=None, caller=caller)
    )
    return bench.error(request)


def test_the_epochs_of_a_group_are_those_of_its_newest_records():
    group = ConsumerGroup(group_id=G, topics=Topics())
    for epoch in (3, 4):
        record = ConsumerGroupRecord(epoch=epoch, metadata_hash=10 * epoch)
        group.apply(ConsumerGroupKey(G), record)
        group.apply(TargetKey(G), TargetRecord(epoch=epoch - 1))
        assert (group.epoch, group.metadata_hash, group.target_epoch) == (
            epoch,
            10 * epoch,
            epoch - 1,
        )
    group.apply(ConsumerGroupKey(G), None)
    group.apply(TargetKey(G), None)
    assert (group.epoch, group.metadata_hash, group.target_epoch) == (0, 0, 0)


def test_only_members_of_their_present_epoch_commit():
    bench = ConsumerBench()
    bench.members("a")
    assert commit(bench, "a", 1) is ErrorCode.NONE
    for epoch in (0, 2, 7, -1):
        assert commit(bench, "a", epoch) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(bench, "b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(bench) is ErrorCode.UNKNOWN_MEMBER_ID


def test_anybody_commits_while_the_group_has_no_members():
    bench = ConsumerBench()
    (only,) = bench.members("a")
    only.leave()
    assert commit(bench) is ErrorCode.NONE
    assert commit(bench, "a", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_does_not_know_epochs_is_told_to_use_another_version():
    bench = ConsumerBench()
    bench.members("a")
    assert commit(bench, "a", 1, knows=False) is ErrorCode.UNSUPPORTED_VERSION


def test_a_commit_in_a_transaction_has_the_errors_of_the_classic_protocol():
    bench = ConsumerBench()
    bench.members("a")
    assert commit(bench, "a", 1, producer=(7, 0), knows=False) is ErrorCode.NONE
    assert commit(bench, "a", 2, producer=(7, 0)) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("knows", "code"),
    [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.ILLEGAL_GENERATION)],
)
def test_a_member_of_no_group_is_told_so_as_its_version_knows(knows, code):
    assert commit(ConsumerBench(), "a", 1, knows=knows) is code


def test_members_read_at_their_epoch_and_others_without_one():
    bench = ConsumerBench()
    bench.members("a")
    assert read(bench) is read(bench, "a", 1) is ErrorCode.NONE
    assert read(bench, "a", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert read(bench, "b", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_subscribed_topics_are_neither_deleted_nor_expire():
    bench = ConsumerBench(retention_ms=1_000)
    (client,) = bench.members("a")
    bench.commit({T0: 1, U0: 1}, RequestingMember(member_id="a", generation=1))
    commit(bench, "a", 1)
    request = bench.ask(lambda request: DeleteOffsets(request=request, group_id=G, partitions=[T0]))
    assert bench.answers[request].refused == {T0}
    bench.advance(2_000)
    bench.step(ExpireOffsets(at=bench.at))
    assert T0 in bench.offsets()
    client.leave()
    bench.step(ExpireOffsets(at=bench.at))
    assert bench.coordinator.groups == {}


def test_a_group_is_deleted_with_all_its_records_when_it_is_empty():
    bench = ConsumerBench()
    (client,) = bench.members("a")
    for code in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE):
        request = bench.ask(lambda request: DeleteGroup(request=request, group_id=G))
        assert bench.error(request) is code
        client.leave()
    bench.fail_over()
    assert bench.coordinator.groups == {}


def test_a_restored_group_is_the_same_as_the_live_one():
    bench = ConsumerBench({"t": 7, "u": 2})
    bench.members("a", "b", "c")
    bench.enter_group("s", "u", instance_id="i", assignor="range", pattern="x")
    before = bench.consumer_group()
    bench.fail_over()
    after = bench.consumer_group()
    for name in (
        "content", "instances", "owners", "subscriptions", "subscribers", "with_pattern",
        "with_assignor", "with_protocol", "classic_count", "named_count", "reconciled_count",
        "state",
    ):  # fmt: skip
        assert getattr(after, name) == getattr(before, name), name
    assert {*after.sessions} == {*before.sessions}


def test_members_with_the_same_topics_share_one_list():
    bench = ConsumerBench()
    for name in "abc":
        bench.enter_group(name, *map(str, range(100)))
    bench.fail_over()
    group = bench.consumer_group()
    assert len({id(member.topics) for member in group.members.values()}) == 1
    assert group.named_count == 100 and set(group.subscribers.values()) == {1}
    for name in "abc":
        bench.beat(name, -1)
    assert not group.subscriptions and not group.subscribers and not group.named_count


def test_a_large_group_is_restored_in_pieces():
    bench = ConsumerBench({"t": 1})
    for number in range(700):
        bench.enter_group(f"m{number}", replicate=False)
    bench.replicate()
    bench.compute()
    coordinator = GroupCoordinator()
    most = known = 0
    for _ in coordinator.restore(content_of(bench.log), bench.at):
        group = coordinator.groups.get(G)
        found = len(group.content) if isinstance(group, ConsumerGroup) else 0
        known, most = found, max(most, found - known)
    assert known > 2_000 and most <= PIECE


def test_a_member_in_a_state_of_a_later_version_joins_anew():
    bench = ConsumerBench()
    bench.members("a")
    group = bench.consumer_group()
    current = group.current("a")
    group.content.current["a"] = replace(current, state=MemberState.UNKNOWN)
    code = bench.code(bench.beat("a", 1, owned=current.assigned))
    assert code is ErrorCode.FENCED_MEMBER_EPOCH
    assert bench.beat("a", 1, owned={}).error is ErrorCode.NONE
    assert bench.state() == "Stable"
