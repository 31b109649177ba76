"""Members are admitted to a group, or refused; static members keep their assignment. Source:
KIP-345, KIP-394, KIP-814."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.group import GroupState
from storage_engine.core.groups.classic.rebalances import NEW_MEMBER_TIMEOUT_MS
from storage_engine.core.groups.events import CheckDeadlines
from storage_engine.tests.core.groups.group_bench import (
    AT_ONCE,
    SESSION_MS,
    GroupBench,
    caller,
    subscription,
)


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
