"""Consumer groups beside others: what is restored, and what reaches whom."""

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.group import ClassicGroup
from storage_engine.core.groups.consumer.events import (
    AssignmentComputed,
    GroupSettingsChanged,
    PatternResolved,
)
from storage_engine.core.groups.consumer.records import ConsumerMemberKey, CurrentAssignmentKey
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.tests.core.groups.consumer.consumer_bench import ConsumerBench, numbers, shapes
from storage_engine.tests.core.groups.group_bench import G, content_of
from storage_engine.tests.core.outcome import outcome


def test_groups_of_both_kinds_are_restored_beside_each_other():
    bench = ConsumerBench(initial_delay_ms=0)
    bench.members("a")
    bench.enter(group_id="classic")
    _, request = bench.enter(group_id="other")
    joined = bench.joined(request)
    bench.commit({}, group_id="offsets")
    bench.fail_over()
    assert bench.state() == "Stable"
    assert not isinstance(bench.coordinator.groups.get("other"), ClassicGroup), "never assigned"
    assert joined.generation == 1


def test_events_about_groups_that_are_not_there_are_dropped():
    bench = ConsumerBench(initial_delay_ms=0)
    bench.joined(bench.enter()[1])
    before = len(bench.log)
    for group_id in (G, "gone"):
        bench.step(GroupSettingsChanged(group_id=group_id, session_timeout_ms=50_000))
        topics = frozenset({"t"})
        bench.step(PatternResolved(group_id=group_id, pattern="p", topics=topics, at=bench.at))
        bench.step(AssignmentComputed(group_id=group_id, epoch=1, targets={}, at=bench.at))
    assert len(bench.log) == before


def restored(bench: ConsumerBench, *unreadable) -> ConsumerBench:
    """A bench whose coordinator can't read the newest records of these keys."""
    content = content_of(bench.log)
    for key in unreadable:
        content.put(key, UnreadableRecord("of a later version"), None)
    bench.coordinator = GroupCoordinator(bench.settings)
    bench._ends = [(0, len(bench.log))]
    bench._run(outcome(bench.coordinator.restore(content, bench.at)))
    bench.tell_topics(bench.shapes)
    bench.replicate()
    return bench


def test_a_member_whose_record_can_not_be_read_joins_anew():
    bench = ConsumerBench()
    bench.members("a", "b")
    restored(bench, ConsumerMemberKey(G, "a"))
    assert bench.code(bench.beat("a", 3)) is ErrorCode.UNKNOWN_MEMBER_ID
    again = bench.enter_group("a")
    assert again.error is ErrorCode.NONE
    bench.fail_over()
    assert {*bench.consumer_group().members} == {"a", "b"}


def test_a_member_whose_assignment_can_not_be_read_is_fenced():
    bench = ConsumerBench()
    (client,) = bench.members("a")
    restored(bench, CurrentAssignmentKey(G, "a"))
    code = bench.code(bench.beat("a", client.epoch, owned=client.owned))
    assert code is ErrorCode.FENCED_MEMBER_EPOCH
    assert numbers(bench.enter_group("a").assignment) == [0, 1, 2, 3]


def test_topics_that_changed_while_nobody_led_are_noticed():
    bench = ConsumerBench()
    (client,) = bench.members("a")
    bench.shapes = shapes(t=6)
    bench.fail_over()
    assert numbers(client.turn().assignment) == [0, 1, 2, 3, 4, 5]


def test_topics_that_are_the_same_after_a_failover_move_nobody():
    bench = ConsumerBench()
    bench.members("a", "b")
    before = len(bench.log)
    bench.fail_over()
    assert len(bench.log) == before and bench.state() == "Stable"
