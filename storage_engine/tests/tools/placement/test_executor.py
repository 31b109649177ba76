"""A plan is carried out wave after wave, R-TOOL3: what is waited for, and what ends it."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.tools.placement.moved_replicas import (
    CORDONED,
    LOG_BYTES,
    Progress,
    kinds,
)
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement import executor as executor_module
from storage_engine.tools.placement.cluster_layout import read_layout
from storage_engine.tools.placement.executor import Executor
from storage_engine.tools.placement.waves import WaveLimits

A, B, C = (TopicPartition("t", number) for number in range(3))
RATE = "leader.replication.throttled.rate"
ONE = WaveLimits(partitions=1)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(executor_module, "_POLL_S", 0.001)


@pytest.fixture
def settled(monkeypatch):
    """What brokers tell is never of before."""
    monkeypatch.setattr(executor_module, "_SETTLED_S", 0.0)


def made(cluster, limits=ONE, throttle=None):
    return Executor(cluster, Progress(), limits=limits, throttle=throttle)


def carry_out(cluster, plan, limits=ONE, **more):
    executor = made(cluster, limits)
    executor.execute(plan, read_layout(cluster), "moved", **more)
    return executor


def test_a_wave_begins_when_the_one_before_it_has_ended_and_leaders_are_elected(moved, cluster):
    moved.place((1, 2), (2, 3), (3, 1))
    moved.turns = 3
    plan = {A: (4, 2), B: (4, 3), C: (4, 1)}
    executor = carry_out(cluster, plan, WaveLimits(partitions=2))
    assert moved.history == [
        ("move", {A: (4, 2), B: (4, 3)}),
        ("end", A),
        ("end", B),
        ("elect", [A, B]),
        ("move", {C: (4, 1)}),
        ("end", C),
        ("elect", [C]),
    ]
    assert moved.replicas == plan
    assert executor.bytes_copied == 3 * LOG_BYTES
    assert executor.progress.kept == ["moved: 3 partitions, 3.0 MiB: done"]


def test_a_plan_of_nothing_does_and_tells_nothing(moved, cluster):
    executor = carry_out(cluster, {})
    assert not moved.history
    assert not executor.progress.kept


def test_a_topic_that_is_deleted_meanwhile_has_nothing_to_move(moved, cluster):
    moved.place((1, 2))
    layout = read_layout(cluster)
    moved.delete("t")
    made(cluster).execute({A: (3, 2)}, layout, "moved")
    assert moved.moves == {}


def test_a_refused_partition_ends_the_command_with_its_reason(moved, cluster):
    moved.place((1, 2), (2, 3))
    moved.refused[B].append(ErrorCode.POLICY_VIOLATION)
    with pytest.raises(CommandError, match=r"not every reassignment could begin: t-1: "):
        carry_out(cluster, {A: (3, 2), B: (1, 3)}, WaveLimits())
    assert A in moved.moves, "what has begun goes on"


def test_what_is_refused_for_a_moment_is_asked_for_again(moved, cluster):
    moved.place((1, 2), (2, 3))
    moved.refused[A].append(ErrorCode.NOT_CONTROLLER)
    carry_out(cluster, {A: (3, 2), B: (1, 3)}, WaveLimits())
    begun = [plan for _, plan in kinds(moved, "move")]
    assert begun == [{A: (3, 2), B: (1, 3)}, {A: (3, 2)}]


def test_a_broker_that_was_cordoned_a_moment_ago_is_asked_for_again(moved, cluster):
    moved.place((1, 2))
    moved.refused[A].extend([ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 3)
    carry_out(cluster, {A: (3, 2)})
    assert moved.replicas[A] == (3, 2)


def test_a_broker_that_stays_cordoned_ends_the_command(moved, cluster, settled):
    moved.place((1, 2))
    moved.settings["3"][CORDONED] = "*"
    with pytest.raises(CommandError, match="not every reassignment could begin"):
        carry_out(cluster, {A: (3, 2)})


def test_a_partition_that_somebody_else_moves_ends_the_command(moved, cluster, settled):
    moved.place((1, 2))
    layout = read_layout(cluster)
    moved.refused[A].append(ErrorCode.NONE)  # And yet nothing moves.
    with pytest.raises(CommandError, match=r"t-0 was given other replicas by somebody else"):
        made(cluster).execute({A: (3, 2)}, layout, "moved")
    assert not kinds(moved, "elect")


def test_replicas_of_before_are_passed_over_for_a_while(moved, cluster):
    """Metadata comes later than the end of the reassignment."""
    moved.place((1, 2))
    moved.refused[A].append(ErrorCode.NONE)

    class Late(Progress):
        def tell(self, text):
            super().tell(text)
            if len(self.told) == 5:
                moved.replicas[A] = moved.isr[A] = (3, 2)

    executor, progress = made(cluster), Late()
    executor.progress = progress
    executor.execute({A: (3, 2)}, read_layout(cluster), "moved")
    assert len(progress.told) == 5


def test_a_move_to_a_dead_broker_is_waited_for_unless_the_caller_does_not(moved, cluster):
    moved.place((3, 2), (2, 3))
    layout = read_layout(cluster)
    port = moved.stop_broker(1)
    carried = made(cluster, WaveLimits())
    carried.execute({A: (1, 2), B: (4, 3)}, layout, "moved", waits_for_dead=False)
    assert moved.replicas == {A: (3, 2), B: (4, 3)}

    class Restarts(Progress):
        def tell(self, text):
            super().tell(text)
            if len(self.told) == 3:
                moved.start_broker(1, port)

    carried.progress = progress = Restarts()
    carried.execute({A: (1, 2)}, layout, "moved")
    assert moved.replicas[A] == (1, 2)
    assert "; 1 of them: waits for dead brokers 1" in progress.told[0]


def test_it_tells_how_much_is_copied(moved, cluster, monkeypatch):
    monkeypatch.setattr(executor_module, "_SIZES_S", 0.0)
    moved.place((1, 2), (2, 3))
    moved.turns = 3
    moved.copied = {A: LOG_BYTES // 2, B: 2 * LOG_BYTES}
    executor = carry_out(cluster, {A: (3, 2), B: (1, 3)})
    told = executor.progress.told
    assert told[0] == "moved: 0 of 2 partitions, 0.5 of 2.0 MiB, 1 under way"
    assert told[-1] == "moved: 1 of 2 partitions, 2.0 of 2.0 MiB, 1 under way"


def test_only_its_own_reassignments_are_cancelled_and_it_waits_for_that(moved, cluster):
    moved.place((1, 2), (2, 3), (3, 1))
    moved.ends = False
    moved.moves = {A: (4, 2), C: (4, 1)}
    moved.turns = 5
    executor = made(cluster)
    executor.cancel([A, B])
    assert executor.progress.told, "it waits"
    assert kinds(moved, "move") == [("move", {A: None})]
    assert moved.moves == {C: (4, 1)}
    assert executor.progress.kept == ["cancelled: 1 reassignments"]
    executor.cancel([A, B])
    assert len(kinds(moved, "move")) == 1


def test_first_replicas_are_elected_wave_by_wave(moved, cluster):
    moved.place((1, 2), (2, 3), (3, 1))
    made(cluster, WaveLimits(partitions=2)).elect({A: (1, 2), B: (2, 3), C: (3, 1)})
    assert moved.history == [("elect", [A, B]), ("elect", [C])]


@pytest.mark.parametrize(("target", "is_throttled"), [((3, 2), True), ((2, 1), False)])
def test_a_throttle_is_for_what_is_copied(moved, cluster, target, is_throttled):
    moved.place((1, 2))
    layout = read_layout(cluster)
    executor = made(cluster, throttle=1000)
    executor.execute({A: target}, layout, "moved")
    assert (("set", "", RATE, "1000") in moved.history) is is_throttled


def test_the_end_of_a_throttle_leaves_out_topics_that_are_gone(moved, cluster):
    moved.place((1, 2))
    moved.place((1, 2), topic="u")
    moved.delete("u")
    made(cluster).end_throttle({A: (3, 2), TopicPartition("u", 0): (3, 2)})
    assert {name for _, name, *_ in kinds(moved, "set")} == {"t", ""}
