"""Requests to a consumer group cost the same however many members it has."""

from itertools import pairwise

from storage_engine.core.coordinator_log import Moment, Replicated
from storage_engine.core.groups.consumer.events import ConsumerHeartbeat, TopicShapesChanged
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.deadlines import DUE_MAX
from storage_engine.core.groups.events import CheckDeadlines, MemberHeartbeat, RequestingMember
from storage_engine.core.groups.settings import GroupSettings
from storage_engine.tests.core.groups.consumer.consumer_bench import Client, ConsumerBench, shapes
from storage_engine.tests.core.groups.group_bench import G
from storage_engine.tests.core.groups.test_coordinator_costs import lines_of

AT = Moment(0, 0)
TOPICS = shapes(t=2_000)
"""So many that each assignment is computed beside the loop."""


def beat(number: int, member_id: str, epoch: int, **how):
    return ConsumerHeartbeat(
        request=number, group_id=G, member_id=member_id, member_epoch=epoch, at=AT, **how
    )


def join(number: int):
    how = {"rebalance_timeout_ms": 60_000, "topics": frozenset({"t"}), "owned": {}}
    return beat(number, f"m{number}", 0, **how)


def group_of(count: int) -> GroupCoordinator:
    coordinator = GroupCoordinator(GroupSettings())
    coordinator.step(Replicated(number=0))
    coordinator.step(TopicShapesChanged(topics=TOPICS, changed=frozenset(TOPICS), at=AT))
    coordinator.step(CheckDeadlines(at=AT))
    for number in range(count):
        coordinator.step(join(number))
    return coordinator


def test_a_heartbeat_costs_the_same_in_a_large_group():
    few, many = group_of(3), group_of(300)
    one, other = (lines_of(lambda c=c: c.step(beat(999, "m1", 1))) for c in (few, many))
    assert one == other < 250


def test_joins_and_leaves_cost_the_same_in_a_large_group():
    few, many = group_of(3), group_of(300)
    for event in (join(999), beat(1_000, "m1", -1)):
        one, other = (lines_of(lambda c=c, e=event: c.step(e)) for c in (few, many))
        assert other <= one + 20, "lines for each member would be three hundred"


def test_a_step_to_the_target_costs_what_the_member_has():
    lines = []
    for count in (3, 100):
        bench = ConsumerBench({"t": 2 * count})
        clients = [Client(bench, f"m{number}") for number in range(count)]
        bench.settle(clients)
        bench.tell_topics(shapes(t=2 * count + 2))
        bench.compute()
        client = clients[0]
        event = beat(10**6, client.name, client.epoch, owned=client.owned)
        lines.append(lines_of(lambda b=bench, e=event: b.coordinator.step(e)))
    assert lines[1] <= lines[0] + 30


def test_a_classic_members_heartbeat_costs_the_same_in_a_large_group():
    lines = []
    for count in (3, 100):
        bench = ConsumerBench()
        bench.members("new")
        for _ in range(count):
            member_id, request = bench.enter()
        joined = bench.joined(request)
        caller = RequestingMember(member_id=member_id, generation=joined.generation)
        event = MemberHeartbeat(request=10**6, group_id=G, caller=caller, at=bench.at)
        lines.append(lines_of(lambda b=bench, e=event: b.coordinator.step(e)))
    assert lines[1] <= lines[0] + 10


def test_sessions_that_end_at_once_are_ended_a_part_at_a_time():
    count = 2 * DUE_MAX + 10
    coordinator = group_of(count)
    coordinator.step(Replicated(number=coordinator._log.appended))
    left = [count]
    while left[-1]:
        coordinator.step(CheckDeadlines(at=Moment(50_000, 0)))
        left.append(coordinator.groups[G].size)
    assert max(a - b for a, b in pairwise(left)) <= DUE_MAX


def test_a_topic_that_changes_is_told_to_many_groups_in_pieces():
    coordinator = GroupCoordinator(GroupSettings())
    coordinator.step(Replicated(number=0))
    small = shapes(t=1)
    coordinator.step(TopicShapesChanged(topics=small, changed=frozenset(small), at=AT))
    coordinator.step(CheckDeadlines(at=AT))
    how = {"rebalance_timeout_ms": 1, "topics": frozenset({"t"}), "owned": {}}
    for number in range(1_200):
        event = ConsumerHeartbeat(
            request=number, group_id=f"g{number}", member_id="a", member_epoch=0, at=AT, **how
        )
        coordinator.step(event)
    grown = shapes(t=2)
    coordinator.step(TopicShapesChanged(topics=grown, changed=frozenset(grown), at=AT))
    changed = []
    while coordinator._consumer.has_work:
        coordinator.step(CheckDeadlines(at=AT))
        changed.append(sum(group.target_epoch == 2 for group in coordinator.groups.values()))  # type: ignore[attr-defined]
    assert changed[:3] == [500, 1_000, 1_200]
