"""Groups in the coordinator: generations, static members, failover, time. Source: Kafka's classic
group protocol; KIP-62, KIP-134, KIP-345, KIP-394, KIP-814."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import CheckDeadlines, Joined, RequestingMember
from storage_engine.core.groups.group import GroupState
from storage_engine.core.groups.rebalances import NEW_MEMBER_TIMEOUT_MS
from storage_engine.tests.core.groups.group_bench import (
    REBALANCE_MS,
    SESSION_MS,
    T0,
    GroupBench,
    subscription,
)

AT_ONCE = {"initial_delay_ms": 0}


def caller(joined: Joined, instance_id: str | None = None) -> RequestingMember:
    return RequestingMember(
        member_id=joined.member_id, generation=joined.generation, instance_id=instance_id
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


def test_the_last_member_that_leaves_empties_the_group():
    bench = GroupBench(**AT_ONCE)
    (only,) = bench.form(1)
    assert bench.leave(caller(only)) == (ErrorCode.NONE,)
    assert bench.leave(caller(only)) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert (bench.group().state, bench.group().generation) == (GroupState.EMPTY, 2)
    bench.fail_over()
    assert (bench.group().state, bench.group().generation) == (GroupState.EMPTY, 2)


def test_an_id_that_was_promised_keeps_the_others_waiting_only_for_a_session():
    bench = GroupBench(**AT_ONCE)
    (first,) = bench.form(1)
    bench.join()
    again = bench.join(first.member_id)
    assert again not in bench.answers, "a member has announced itself"
    bench.advance(SESSION_MS)
    assert bench.joined(again).generation == 2


def test_a_new_member_that_nobody_hears_of_again_does_not_stay():
    bench = GroupBench(**AT_ONCE)
    (first,) = bench.form(1)
    bench.enter(rebalance_timeout_ms=NEW_MEMBER_TIMEOUT_MS * 2)
    for _ in range(NEW_MEMBER_TIMEOUT_MS // 5_000):
        bench.advance(5_000)
        bench.heartbeat(first.member_id, 1)
    assert len(bench.group().members) == 1


def test_members_without_a_protocol_in_common_do_not_meet():
    bench = GroupBench(**AT_ONCE)
    bench.form(1)
    for refused in (
        {"protocols": (("other", b""),)},
        {"protocols": ()},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ):
        request = bench.join(**refused)
        assert bench.error(request) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_the_one_that_most_prefer_of_those_that_all_have():
    bench = GroupBench(initial_delay_ms=100)
    data = subscription("t")
    orders = (("a", "b", "c"), ("c", "b"), ("b", "c"), ("d", "c", "b"))
    requests = [bench.enter(protocols=tuple((n, data) for n in each))[1] for each in orders]
    bench.advance(200)
    assert {bench.joined(each).protocol for each in requests} == {"b"} or {
        bench.joined(each).protocol for each in requests
    } == {"c"}
    votes = [next(n for n in each if n in ("b", "c")) for each in orders]
    assert bench.group().protocol == max(("b", "c"), key=votes.count)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": (("range", bytes(9 << 20)),)}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_can_not_join_is_told_why(how, code):
    bench = GroupBench()
    assert bench.error(bench.join(**how)) is code
    assert not bench.coordinator.groups


def test_a_full_group_takes_nobody_but_those_who_are_in():
    bench = GroupBench(initial_delay_ms=0, max_size=2)
    first, _ = bench.form(2)
    assert bench.error(bench.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    again = bench.join(first.member_id)
    assert again not in bench.answers or bench.error(again) is ErrorCode.NONE


def test_a_request_that_is_sent_again_is_answered_in_place_of_the_first():
    bench = GroupBench(**AT_ONCE)
    first, second = bench.form(2)
    lost = bench.join(first.member_id)
    again = bench.join(first.member_id)
    assert bench.error(lost) is ErrorCode.REBALANCE_IN_PROGRESS
    other = bench.join(second.member_id)
    leader, follower = bench.joined(again), bench.joined(other)
    assert bench.joined(bench.join(first.member_id)).members == leader.members
    lost, again = bench.sync(follower), bench.sync(follower)
    assert bench.error(lost) is ErrorCode.REBALANCE_IN_PROGRESS
    bench.sync(leader, {follower.member_id: b"part"})
    assert bench.synced(again) == b"part"


# --- static members ---


def test_a_static_member_that_is_started_again_keeps_its_part_without_a_rebalance():
    bench = GroupBench(**AT_ONCE)
    first, second = bench.form(2, instance_id=None)
    statics = [bench.join(instance_id=name, asks_for_id=True) for name in ("i1", "i2")]
    again = [bench.join(each.member_id) for each in (first, second)]
    members = bench.assign([bench.joined(each) for each in (*again, *statics)])
    old = next(m for m in members if m.member_id == bench.joined(statics[0]).member_id)
    new = bench.joined(bench.join(instance_id="i1"))
    assert new.member_id != old.member_id and new.generation == old.generation
    assert bench.group().state is GroupState.STABLE
    assert bench.synced(bench.sync(new, instance_id="i1")) == old.member_id.encode()
    fenced = bench.heartbeat(old.member_id, old.generation, "i1")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
    bench.fail_over()
    assert bench.heartbeat(new.member_id, new.generation, "i1") is ErrorCode.NONE


@pytest.mark.parametrize("skips", [True, False])
def test_a_static_leader_that_is_started_again_assigns_nothing(skips):
    bench = GroupBench(**AT_ONCE)
    leader = bench.joined(bench.join(instance_id="i"))
    bench.assign([leader])
    new = bench.joined(bench.join(instance_id="i", skips_assignment=skips))
    if skips:
        assert (new.leader, new.skip_assignment, len(new.members)) == (new.member_id, True, 1)
    else:
        assert (new.leader, new.members) == (leader.member_id, ())


def test_a_static_member_with_other_topics_begins_a_rebalance():
    bench = GroupBench(**AT_ONCE)
    bench.assign([bench.joined(bench.join(instance_id="i"))])
    new = bench.joined(bench.join(instance_id="i", protocols=(("range", subscription("u")),)))
    assert (new.generation, new.leader) == (2, new.member_id)


def test_a_static_member_that_is_away_keeps_its_part_until_its_session_ends():
    bench = GroupBench(**AT_ONCE)
    (first,) = bench.form(1)
    static = bench.join(instance_id="i")
    again = bench.join(first.member_id)
    bench.assign([bench.joined(again), bench.joined(static)])
    for _ in range(3):
        bench.advance(SESSION_MS // 4)
        assert bench.heartbeat(first.member_id, 2) is ErrorCode.NONE
    bench.advance(SESSION_MS // 4)
    assert bench.heartbeat(first.member_id, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_two_that_start_with_one_instance_id_are_not_both_members():
    bench = GroupBench(initial_delay_ms=100)
    first = bench.join(instance_id="i")
    second = bench.join(instance_id="i")
    assert bench.error(first) is ErrorCode.FENCED_INSTANCE_ID
    bench.advance(200)
    assert len(bench.joined(second).members) == 1


@pytest.mark.parametrize("timeout_ms", [0, 1])
def test_a_static_member_without_a_rebalance_timeout_is_looked_for_once_in_a_while(timeout_ms):
    bench = GroupBench(**AT_ONCE)
    _, first = bench.enter()
    static = bench.join(instance_id="i", rebalance_timeout_ms=timeout_ms)
    again = bench.join(bench.joined(first).member_id)
    leader, _ = bench.assign([bench.joined(again), bench.joined(static)])
    bench.leave(caller(leader))
    ticks, end_ms = 0, bench.now_ms + SESSION_MS // 2
    while bench.wake_ms is not None and bench.wake_ms <= end_ms and ticks < 100:
        ticks += 1
        bench.now_ms, bench.wake_ms = max(bench.now_ms, bench.wake_ms), None
        bench.step(CheckDeadlines(at=bench.at))
    assert ticks <= 6
    bench.advance(SESSION_MS)
    assert bench.group().state is GroupState.EMPTY


def test_an_operator_takes_static_members_out_by_their_instance_ids():
    bench = GroupBench(initial_delay_ms=100)
    requests = [bench.join(instance_id=name) for name in ("i1", "i2")]
    bench.advance(200)
    bench.assign([bench.joined(each) for each in requests])
    codes = bench.leave(
        RequestingMember(instance_id="i1"),
        RequestingMember(instance_id="unknown"),
        RequestingMember(member_id="another", instance_id="i2"),
    )
    assert codes == (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    )
    assert set(bench.group().instances) == {"i2"}


# --- failover ---


def test_a_generation_goes_on_with_the_next_coordinator():
    bench = GroupBench(**AT_ONCE)
    first, second = bench.form(2)
    bench.commit({T0: 5}, caller(first))
    bench.fail_over()
    assert bench.heartbeat(first.member_id, 1) is ErrorCode.NONE
    assert bench.synced(bench.sync(second)) == second.member_id.encode()
    assert bench.error(bench.commit({T0: 6}, caller(first))) is ErrorCode.NONE
    assert bench.offsets() == {T0: 6}
    bench.advance(SESSION_MS)
    assert bench.group().state is GroupState.EMPTY, "their sessions count anew, and end"


def test_a_generation_that_was_not_recorded_is_not_known_to_the_next_coordinator():
    bench = GroupBench(**AT_ONCE)
    first, second = bench.form(2)
    again = [bench.join(first.member_id), bench.join(second.member_id)]
    leader, _ = (bench.joined(each) for each in again)
    sync = bench.sync(leader, {leader.member_id: b"x"}, replicate=False)
    bench.fail_over()
    assert sync not in bench.answers
    assert bench.heartbeat(leader.member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat(leader.member_id, 1) is ErrorCode.NONE


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
    from storage_engine.core.groups.events import Sync

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
