"""Groups from one coordinator to the next, and requests that end a membership."""

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.group import GroupState
from storage_engine.core.groups.events import RequestingMember
from storage_engine.tests.core.groups.group_bench import (
    AT_ONCE,
    SESSION_MS,
    T0,
    GroupBench,
    caller,
)


def test_the_last_member_that_leaves_empties_the_group():
    bench = GroupBench(**AT_ONCE)
    (only,) = bench.form(1)
    assert bench.leave(caller(only)) == (ErrorCode.NONE,)
    assert bench.leave(caller(only)) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert (bench.group().state, bench.group().generation) == (GroupState.EMPTY, 2)
    bench.fail_over()
    assert (bench.group().state, bench.group().generation) == (GroupState.EMPTY, 2)


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
