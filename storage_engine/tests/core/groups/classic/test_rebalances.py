"""Generations of a group, from the first join to the assignment. Source: Kafka's classic group
protocol; KIP-62, KIP-134, KIP-394."""

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.group import GroupState
from storage_engine.core.groups.events import CheckDeadlines, RequestingMember, Sync
from storage_engine.tests.core.groups.group_bench import (
    AT_ONCE,
    REBALANCE_MS,
    SESSION_MS,
    T0,
    GroupBench,
    caller,
)


def test_the_first_members_are_gathered_for_as_long_as_others_come():
    bench = GroupBench(initial_delay_ms=3_000)
    _, first = bench.enter()
    bench.advance(2_000)
    _, second = bench.enter()
    bench.advance(2_900)
    assert first not in bench.answers, "somebody came, so it waits once more"
    bench.advance(3_000)
    one, two = bench.joined(first), bench.joined(second)
    assert (one.generation, two.generation) == (1, 1)
    assert one.leader == two.leader == one.member_id
    assert [each.member_id for each in one.members] == [one.member_id, two.member_id]
    assert two.members == ()


def test_a_part_is_told_once_its_record_is_replicated():
    bench = GroupBench(**AT_ONCE)
    _, request = bench.enter()
    joined = bench.joined(request)
    sync = bench.sync(joined, {joined.member_id: b"all"}, replicate=False)
    again = bench.sync(joined, replicate=False)
    assert sync not in bench.answers and again not in bench.answers
    bench.replicate()
    assert bench.synced(sync) == bench.synced(again) == b"all"


def test_a_member_that_comes_makes_all_join_anew():
    bench = GroupBench(**AT_ONCE)
    (first,) = bench.form(1)
    _, newcomer = bench.enter()
    assert newcomer not in bench.answers
    code = bench.heartbeat(first.member_id, first.generation)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
    again = bench.join(first.member_id)
    two = [bench.joined(again), bench.joined(newcomer)]
    assert {each.generation for each in two} == {2}
    bench.assign(two)
    assert bench.group().state is GroupState.STABLE
    assert bench.heartbeat(first.member_id, 2) is ErrorCode.NONE
    assert bench.heartbeat(first.member_id, 1) is ErrorCode.ILLEGAL_GENERATION


def test_a_member_that_says_nothing_is_out_after_its_session_timeout():
    bench = GroupBench(**AT_ONCE)
    lives, dies = bench.form(2)
    for _ in range(4):
        bench.advance(SESSION_MS // 4)
        code = bench.heartbeat(lives.member_id, lives.generation)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
    alone = bench.joined(bench.join(lives.member_id))
    assert (alone.generation, [m.member_id for m in alone.members]) == (2, [lives.member_id])
    assert bench.heartbeat(dies.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_join_anew_in_time_is_left_out():
    bench = GroupBench(**AT_ONCE)
    first, second = bench.form(2)
    _, newcomer = bench.enter()
    again = bench.join(first.member_id)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        bench.advance(5_000)
        # It lives, but does not come.
        assert bench.heartbeat(second.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        assert again not in bench.answers
    bench.advance(5_000)
    assert {m.member_id for m in bench.joined(again).members} == {
        first.member_id,
        bench.joined(newcomer).member_id,
    }


def test_who_does_not_ask_for_its_part_in_time_is_left_out():
    bench = GroupBench(**AT_ONCE)
    first, second = bench.form(2)
    again = [bench.join(first.member_id), bench.join(second.member_id)]
    leader, other = (bench.joined(each) for each in again)
    bench.sync(leader, {leader.member_id: b"1", other.member_id: b"2"})
    for _ in range(REBALANCE_MS // 5_000):
        bench.advance(5_000)
        bench.heartbeat(leader.member_id, 2)
        bench.heartbeat(other.member_id, 2)
    assert bench.heartbeat(other.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(leader.member_id, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_dies_before_it_assigns_is_replaced():
    bench = GroupBench(**AT_ONCE)
    first, second = bench.form(2)
    again = [bench.join(first.member_id), bench.join(second.member_id)]
    leader, other = (bench.joined(each) for each in again)
    waiting = bench.sync(other)
    bench.advance(SESSION_MS)
    assert bench.error(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    alone = bench.joined(bench.join(other.member_id))
    assert alone.leader == other.member_id != leader.member_id


def test_an_assignment_that_no_record_can_hold_is_refused():
    bench = GroupBench(initial_delay_ms=0, record_max_bytes=10_000)
    _, request = bench.enter()
    joined = bench.joined(request)
    refused = bench.sync(joined, {joined.member_id: bytes(10_000)})
    assert bench.error(refused) is ErrorCode.INVALID_REQUEST
    assert bench.group().state is GroupState.COMPLETING
    assert bench.synced(bench.sync(joined, {joined.member_id: b"small"})) == b"small"


def test_a_sync_that_names_another_protocol_is_refused():
    bench = GroupBench(**AT_ONCE)
    (only,) = bench.form(1)
    for protocol in ({"protocol": "sticky"}, {"protocol_type": "connect"}):
        request = bench.ask(
            lambda number, protocol=protocol: Sync(
                request=number, group_id="g", caller=caller(only), at=bench.at, **protocol
            )
        )
        assert bench.error(request) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_fifty_members_share_two_hundred_partitions_through_every_arrival_and_departure():
    """No two members of one generation have a partition, none is without an owner."""
    bench = GroupBench(**AT_ONCE)
    partitions = range(200)
    members: list[str] = []
    waiting: dict[str, int] = {}

    def settle() -> None:
        for member_id in members:
            if member_id not in waiting:
                waiting[member_id] = bench.join(member_id)
        joined = {member_id: bench.joined(request) for member_id, request in waiting.items()}
        waiting.clear()
        assert len({each.generation for each in joined.values()}) == 1
        leader = next(each for each in joined.values() if each.leader == each.member_id)
        names = [each.member_id for each in leader.members]
        assert set(names) == set(members)
        parts = {
            name: bytes(p for p in partitions if p % len(names) == index)
            for index, name in enumerate(names)
        }
        syncs = [
            bench.sync(each, parts if each is leader else {}, replicate=False)
            for each in joined.values()
        ]
        bench.replicate()
        owned = [p for each in syncs for p in bench.synced(each)]
        assert sorted(owned) == list(partitions)

    for _ in range(50):
        member_id, waiting_request = bench.enter()
        members.append(member_id)
        waiting[member_id] = waiting_request
        settle()
    for step in range(25):
        gone = members.pop(step % len(members))
        generation = bench.group().generation
        assert bench.leave(RequestingMember(member_id=gone)) == (ErrorCode.NONE,)
        code = bench.error(
            bench.commit({T0: step}, RequestingMember(member_id=gone, generation=generation))
        )
        assert code is ErrorCode.UNKNOWN_MEMBER_ID
        settle()
    assert bench.group().state is GroupState.STABLE


def test_no_session_ends_while_the_answer_of_its_member_waits_for_the_replicas():
    """A follower is slow: members that can't know yet that they are in sync were thrown out, and
    so were those of each generation after it, as long as it was."""
    bench = GroupBench(**AT_ONCE)
    _, join = bench.enter()
    joined = bench.joined(join)
    sync = bench.sync(joined, {joined.member_id: b"part"}, replicate=False)
    for _ in range(3):
        bench.now_ms += SESSION_MS
        bench.step(CheckDeadlines(at=bench.at))
    assert sync not in bench.answers and bench.group().state is GroupState.STABLE
    bench.replicate()
    assert bench.synced(sync) == b"part"
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat(joined.member_id, joined.generation) is ErrorCode.NONE
    bench.advance(SESSION_MS + 1)
    assert not bench.group().members
