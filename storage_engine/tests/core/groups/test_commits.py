"""Offsets in the group coordinator: who may commit, transactions, expiry, deletion. Source: KIP-98,
KIP-211, KIP-229, KIP-447, KIP-496."""

import pytest

from storage_engine.core.coordinator_log import Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.events import (
    CheckDeletedTopics,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    RequestingMember,
    TopicsDeleted,
)
from storage_engine.core.groups.records import GroupKey, OffsetKey
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.core.groups.group_bench import (
    T0,
    T1,
    G,
    GroupBench,
    caller,
    content_of,
    subscription,
)
from storage_engine.tests.core.outcome import outcome

U0 = TopicPartition("u", 0)
RETENTION_MS = 100_000
P, Q = (7, 0), (8, 0)


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench(initial_delay_ms=0, retention_ms=RETENTION_MS)


def expire(bench: GroupBench) -> None:
    bench.step(ExpireOffsets(at=bench.at))
    bench.replicate()


def test_a_commit_is_answered_and_read_once_it_is_replicated(bench):
    commit = bench.commit({T0: 1, T1: 2}, replicate=False)
    assert commit not in bench.answers
    bench.replicate()
    assert bench.error(commit) is ErrorCode.NONE
    assert bench.offsets() == {T0: 1, T1: 2}
    bench.commit({T0: 3}, replicate=False)
    bench.fail_over()
    assert bench.offsets() == {T0: 1, T1: 2}


def test_only_the_present_generation_commits_while_there_are_members(bench):
    first, second = bench.form(2)
    assert bench.error(bench.commit({T0: 1}, caller(first))) is ErrorCode.NONE
    for other, code in (
        (RequestingMember(), ErrorCode.UNKNOWN_MEMBER_ID),
        (RequestingMember(member_id="nobody", generation=1), ErrorCode.UNKNOWN_MEMBER_ID),
        (RequestingMember(member_id=first.member_id, generation=0), ErrorCode.ILLEGAL_GENERATION),
        (RequestingMember(member_id=first.member_id, generation=2), ErrorCode.ILLEGAL_GENERATION),
        (
            RequestingMember(member_id=first.member_id, generation=1, instance_id="i"),
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
    ):
        assert bench.error(bench.commit({T0: 9}, other)) is code
    again = bench.join(first.member_id)
    assert bench.error(bench.commit({T0: 2}, caller(second))) is ErrorCode.NONE
    bench.join(second.member_id)
    next_generation = caller(bench.joined(again))
    code = bench.error(bench.commit({T0: 9}, next_generation))
    assert code is ErrorCode.REBALANCE_IN_PROGRESS, "nothing is assigned yet"
    assert bench.error(bench.commit({T0: 9}, caller(second))) is ErrorCode.ILLEGAL_GENERATION
    assert bench.offsets() == {T0: 2}


def test_anybody_commits_for_a_group_without_members_but_no_generation_that_is_over(bench):
    assert bench.error(bench.commit({T0: 1})) is ErrorCode.NONE
    (only,) = bench.form(1)
    bench.leave(caller(only))
    assert bench.error(bench.commit({T0: 2})) is ErrorCode.NONE
    assert bench.error(bench.commit({T0: 9}, caller(only))) is ErrorCode.UNKNOWN_MEMBER_ID
    unknown = bench.commit({T0: 9}, RequestingMember(generation=3), group_id="other")
    assert bench.error(unknown) is ErrorCode.ILLEGAL_GENERATION
    assert bench.error(bench.commit({T0: 9}, group_id="")) is ErrorCode.INVALID_GROUP_ID
    assert bench.offsets() == {T0: 2}


# --- transactions ---


@pytest.mark.parametrize("fails_over", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_offsets_of_a_transaction_count_once_it_is_committed(bench, commits, fails_over):
    bench.commit({T0: 1, T1: 1})
    bench.commit({T0: 5}, producer=P)
    if fails_over:
        bench.fail_over()
    assert bench.offsets() == {T0: 1, T1: 1}
    stable = bench.read(require_stable=True)
    assert (set(stable.offsets), stable.unstable) == ({T1}, {T0})
    bench.end_transaction(8, commits=True)
    assert bench.offsets() == {T0: 1, T1: 1}, "that was another producer's"
    bench.end_transaction(7, commits=commits)
    if fails_over:
        bench.fail_over()
    assert bench.offsets() == {T0: 5 if commits else 1, T1: 1}
    assert bench.read(require_stable=True).unstable == set()


def test_what_a_marker_says_is_read_once_the_marker_is_replicated(bench):
    bench.commit({T0: 5}, producer=P)
    bench.end_transaction(7, commits=True, replicate=False)
    unanswered = bench.requests + 1
    from storage_engine.core.groups.events import ReadOffsets

    bench.ask(lambda n: ReadOffsets(request=n, group_id=G, partitions=[T0]), replicate=False)
    assert unanswered not in bench.answers
    bench.replicate()
    assert bench.answers[unanswered].offsets[T0].offset == 5


def test_a_member_of_a_stale_generation_commits_nothing_in_a_transaction(bench):
    (only,) = bench.form(1)
    stale = RequestingMember(member_id=only.member_id, generation=0)
    code = bench.error(bench.commit({T0: 1}, stale, producer=P))
    assert code is ErrorCode.ILLEGAL_GENERATION
    assert bench.error(bench.commit({T0: 1}, caller(only), producer=P)) is ErrorCode.NONE
    # A client from before KIP-447 does not say who it is.
    assert bench.error(bench.commit({T0: 2}, producer=P)) is ErrorCode.NONE
    bench.end_transaction(7, commits=True)
    assert bench.offsets() == {T0: 2}


# --- expiry and deletion ---


def test_offsets_of_a_group_without_members_expire_and_the_group_with_them(bench):
    (only,) = bench.form(1)
    bench.commit({T0: 1}, caller(only))
    bench.advance(1_000)
    bench.leave(caller(only))
    bench.advance(RETENTION_MS - 1)
    expire(bench)
    assert bench.offsets() == {T0: 1}, "the time counts from when the group was left"
    bench.advance(1)
    expire(bench)
    assert bench.offsets() == {} and G not in bench.coordinator.groups
    content = content_of(bench.log)
    assert not content.groups and not content.offsets


def test_offsets_of_what_a_group_reads_do_not_expire(bench):
    (only,) = bench.form(1)
    bench.commit({T0: 1, U0: 2}, caller(only))
    for _ in range(RETENTION_MS // 5_000):
        bench.advance(5_000)
        assert bench.heartbeat(only.member_id, 1) is ErrorCode.NONE
    expire(bench)
    assert bench.offsets() == {T0: 1}, "it is not subscribed to the other"


def test_offsets_of_a_transaction_that_is_open_do_not_expire(bench):
    bench.commit({T0: 1})
    bench.commit({T0: 2}, producer=P)
    bench.advance(RETENTION_MS * 2)
    expire(bench)
    assert bench.offsets() == {T0: 1}
    bench.end_transaction(7, commits=False)
    expire(bench)
    assert G not in bench.coordinator.groups


def test_a_group_with_members_is_not_deleted(bench):
    (only,) = bench.form(1)
    bench.commit({T0: 1}, caller(only))

    def delete(group_id: str) -> ErrorCode:
        return bench.error(bench.ask(lambda n: DeleteGroup(request=n, group_id=group_id)))

    assert delete(G) is ErrorCode.NON_EMPTY_GROUP
    assert delete("other") is ErrorCode.GROUP_ID_NOT_FOUND
    bench.leave(caller(only))
    assert delete(G) is ErrorCode.NONE
    assert delete(G) is ErrorCode.GROUP_ID_NOT_FOUND
    assert {entry[0] for entry in bench.log[-2:]} == {GroupKey(G), OffsetKey(G, T0)}
    bench.fail_over()
    assert not bench.coordinator.groups


def test_offsets_of_topics_that_are_read_are_not_deleted(bench):
    (only,) = bench.form(1, protocols=(("range", subscription("t")),))
    bench.commit({T0: 1, U0: 2}, caller(only))
    request = bench.ask(lambda n: DeleteOffsets(request=n, group_id=G, partitions=[T0, U0]))
    assert bench.answers[request].refused == {T0}
    assert bench.offsets() == {T0: 1}
    bench.leave(caller(only))
    request = bench.ask(lambda n: DeleteOffsets(request=n, group_id=G, partitions=[T0, T1]))
    assert bench.answers[request].refused == set()
    assert bench.offsets() == {}


def test_a_group_whose_subscriptions_can_not_be_read_keeps_its_offsets(bench):
    (only,) = bench.form(1, protocols=(("range", b"\x00"),))
    bench.commit({T0: 1}, caller(only))
    request = bench.ask(lambda n: DeleteOffsets(request=n, group_id=G, partitions=[T0]))
    assert bench.error(request) is ErrorCode.NON_EMPTY_GROUP
    bench.step(ExpireOffsets(at=Moment(0, bench.at.wall_ms + 10 * RETENTION_MS)))
    assert bench.offsets() == {T0: 1}


def test_offsets_of_a_deleted_topic_are_forgotten(bench):
    bench.commit({T0: 1, U0: 2})
    bench.commit({T1: 3}, producer=P)
    bench.step(TopicsDeleted(topics=frozenset({"t"})))
    bench.end_transaction(7, commits=True)
    assert bench.offsets() == {U0: 2}
    bench.fail_over()
    assert bench.offsets() == {U0: 2}


def test_topics_are_looked_for_at_the_beginning_and_as_time_passes(bench):
    """One may have been deleted while there was no coordinator."""
    asked = CheckDeletedTopics(topics=frozenset({"t", "u"}))
    bench.commit({T0: 1, T1: 1})
    bench.commit({U0: 2}, producer=P)
    assert asked in bench.coordinator.step(ExpireOffsets(at=bench.at))
    assert asked in outcome(
        GroupCoordinator(bench.settings).restore(content_of(bench.log), bench.at)
    )
    empty = GroupCoordinator(bench.settings)
    assert outcome(empty.restore(content_of([]), bench.at)) == []
    assert empty.step(ExpireOffsets(at=bench.at)) == []
