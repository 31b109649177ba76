"""A request costs the same in a large group as in a small one. The tests count the lines of the
coordinator's code that run, since times say nothing on a busy machine."""

import gc
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from storage_engine.core.coordinator_log import PIECE, AnswerEach, Moment, Replicated, TickAgain
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.deadlines import DUE_MAX
from storage_engine.core.groups.events import (
    CheckDeadlines,
    ExpireOffsets,
    Join,
    Joined,
    TopicsDeleted,
)
from storage_engine.core.groups.settings import GroupSettings
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.state.group_batches import is_long
from storage_engine.tests.core.groups.group_bench import G, GroupBench

NAMES = tuple((f"p{number}", b"") for number in range(100))
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def lines_of(work: Callable[[], Any]) -> int:
    """The lines of Python that `work` runs, without what the garbage collector ends meanwhile."""
    count = 0

    def trace(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    gc.collect()
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def join(number: int, *, protocols=NAMES, member_id: str = "", static: bool = True) -> Join:
    return Join(
        request=number,
        group_id=G,
        member_id=member_id,
        fresh_member_id=f"m{number}",
        instance_id=f"i{number}" if static else None,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="x",
        protocols=protocols,
        asks_for_id=False,
        at=Moment(0, 0),
    )


def classic(coordinator: GroupCoordinator) -> ClassicGroup:
    group = coordinator.groups[G]
    assert isinstance(group, ClassicGroup)
    return group


def group_of(count: int, **how: Any) -> tuple[GroupCoordinator, ClassicGroup]:
    coordinator = GroupCoordinator(GroupSettings())
    coordinator.step(Replicated(number=0))
    for number in range(count):
        coordinator.step(join(number, **how))
    return coordinator, classic(coordinator)


def test_a_join_costs_the_same_in_a_large_group():
    few, many = (group_of(count)[0] for count in (3, 300))
    one, other = (lines_of(lambda each=each: each.step(join(1_000))) for each in (few, many))
    assert other <= one + 20, "lines for each member would be three hundred"


def test_a_heartbeat_and_a_static_member_that_comes_back_cost_the_same_while_others_join():
    few, many = (group_of(count)[0] for count in (3, 300))
    one, other = (lines_of(lambda each=each: each.step(join(1))) for each in (few, many))
    assert other <= one + 20


def complete(coordinator: GroupCoordinator) -> list[Any]:
    for minutes in range(1, 10):
        at = Moment(minutes * REBALANCE_MS, 0)
        effects = coordinator.step(CheckDeadlines(at=at))
        if classic(coordinator).state is GroupState.COMPLETING:
            return effects
    raise AssertionError("no generation began")


def test_members_are_answered_one_by_one_when_they_are_drawn():
    coordinator, group = group_of(300)
    effects = complete(coordinator)
    assert not any(isinstance(effect, Joined) for effect in effects)
    (answers,) = [effect for effect in effects if isinstance(effect, AnswerEach)]
    first = next(answers.answers)
    assert isinstance(first, Joined) and len(first.members) == 300
    assert len(list(answers.answers)) == 299 and group.generation == 1


def test_sessions_that_end_at_once_are_ended_a_part_at_a_time():
    count = 2 * DUE_MAX + 10
    coordinator, group = group_of(count, static=False, protocols=NAMES[:1])
    complete(coordinator)
    group.sync_deadline_ms = None
    left = [count]
    while group.members:
        coordinator.step(CheckDeadlines(at=Moment(10 * REBALANCE_MS, 0)))
        left.append(len(group.members))
    assert max(before - after for before, after in pairwise(left)) <= DUE_MAX


def test_offsets_of_many_groups_expire_in_steps():
    bench = GroupBench(retention_ms=1_000)
    for number in range(2 * PIECE):
        bench.commit({TopicPartition("t", 0): 1}, group_id=f"g{number}")
    bench.advance(2_000)
    steps = 0
    while any(isinstance(effect, TickAgain) for effect in _tick(bench)):
        steps += 1
    assert (steps, bench.coordinator.groups) == (3, {})


def _tick(bench: GroupBench) -> list[Any]:
    effects = bench.coordinator.step(ExpireOffsets(at=bench.at))
    bench._run(effects)
    bench.replicate()
    return effects


def test_what_is_committed_while_offsets_expire_stays():
    bench = GroupBench(retention_ms=1_000)
    partitions = [TopicPartition("t", number) for number in range(2 * PIECE)]
    bench.commit(dict.fromkeys(partitions, 1))
    bench.advance(2_000)
    assert any(isinstance(effect, TickAgain) for effect in _tick(bench))
    bench.commit(dict.fromkeys(partitions, 2))
    _tick(bench)
    assert bench.offsets() == dict.fromkeys(partitions, 2)


def test_a_later_topics_offsets_stay_while_those_of_the_deleted_one_go():
    bench = GroupBench()
    partitions = [TopicPartition("t", number) for number in range(3 * PIECE)]
    bench.commit(dict.fromkeys(partitions, 1))
    bench.commit({TopicPartition("other", 0): 1})
    effects = bench.coordinator.step(TopicsDeleted(topics=frozenset({"t"})))
    bench._run(effects)
    bench.replicate()
    assert any(isinstance(effect, TickAgain) for effect in effects)
    again = dict.fromkeys(partitions[::7], 2)
    bench.commit(again)
    bench.commit({partitions[1]: 2}, producer=(7, 0))
    while any(isinstance(effect, TickAgain) for effect in _tick(bench)):
        pass
    bench.end_transaction(7, commits=True)
    expected = again | {partitions[1]: 2, TopicPartition("other", 0): 1}
    assert bench.offsets() == expected
    bench.fail_over()
    assert bench.offsets() == expected


def test_none_of_many_that_sync_too_late_gets_another_generation():
    coordinator, group = group_of(2 * DUE_MAX + 10, static=False, protocols=NAMES[:1])
    complete(coordinator)
    late = set(group.members)
    for member in group.members.values():
        member.session_timeout_ms = 100 * REBALANCE_MS
        member.touch(0)
    at = Moment((group.sync_deadline_ms or 0) + 1, 0)
    before = len(late)
    while group.members:
        coordinator.step(CheckDeadlines(at=at))
        assert len(group.members) < before, "some are removed in each step"
        assert before - len(group.members) <= DUE_MAX
        assert not group.members or group.state is GroupState.COMPLETING
        before = len(group.members)


def test_a_large_groups_record_is_encoded_in_the_background():
    for count, expected in ((10, False), (600, True)):
        _, group = group_of(count)
        record = group.to_record()
        assert is_long((None, record)) is expected  # type: ignore[arg-type]
