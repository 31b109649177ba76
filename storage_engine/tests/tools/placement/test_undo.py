"""What a plan has done is taken back, or nothing is changed."""

import pytest

from storage_engine.core.ids import TopicPartition
from storage_engine.tests.tools.placement.moved_replicas import CORDONED, Progress, kinds
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement import executor as executor_module
from storage_engine.tools.placement.executor import Executor
from storage_engine.tools.placement.plan_state import Phase, PlanState, read_state, write_state
from storage_engine.tools.placement.undo import undo
from storage_engine.tools.placement.waves import WaveLimits

A, B, C, GONE = (TopicPartition(*each) for each in (("t", 0), ("t", 1), ("t", 2), ("gone", 0)))
THROTTLE = "leader.replication.throttled.rate"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(executor_module, "_POLL_S", 0.001)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "drain.json"


def drained(**more) -> PlanState:
    """Broker 1 had replicas of A and B; of a partition that is gone, too."""
    before = {A: (1, 2), B: (2, 1), GONE: (1, 2)}
    plan = {A: (3, 2), B: (2, 3), GONE: (3, 2)}
    state = PlanState(
        action="drain",
        cluster_id="fake",
        phase=Phase.UNDER_WAY,
        plan=plan,
        before=before,
        brokers=(1,),
        cordons={1: None},
    )
    return PlanState(**{name: getattr(state, name) for name in state.__slots__} | more)


def take_back(cluster, file, state: PlanState) -> int:
    return undo(cluster, file, state, Executor(cluster, Progress(), limits=WaveLimits()))


def phase_of(file) -> Phase:
    state = read_state(file, "fake", "drain")
    assert state is not None
    return state.phase


def test_replicas_leaders_and_cordons_are_as_before(moved, cluster, file):
    moved.place((3, 2), (2, 3), (4, 1))
    moved.settings["1"][CORDONED] = "*"
    assert take_back(cluster, file, drained()) == 2
    assert moved.replicas == {A: (1, 2), B: (2, 1), C: (4, 1)}
    assert moved.partition("t", 0).leader == 1
    assert CORDONED not in moved.settings["1"]
    assert phase_of(file) is Phase.UNDONE
    assert [name for _, name, key, _ in kinds(moved, "set") if key == THROTTLE] == [""]
    assert kinds(moved, "elect")[-1] == ("elect", [A, B]), "a topic that is gone has no leader"
    first = moved.history[0]
    assert first == ("set", "1", CORDONED, None), "nothing may be moved to a cordoned broker"


def test_what_is_under_way_is_cancelled(moved, cluster, file):
    moved.place((1, 2), (2, 1), (4, 1))
    moved.ends = False
    moved.moves = {A: (3, 2), C: (4, 3)}
    assert take_back(cluster, file, drained()) == 0
    assert kinds(moved, "move") == [("move", {A: None})]
    assert moved.moves == {C: (4, 3)}


def test_what_another_command_begins_meanwhile_is_taken_back_too(moved, cluster, file):
    moved.place((1, 2), (2, 1))
    moved.ends = False
    moved.moves = {A: (3, 2)}

    class Another(Progress):
        def keep(self, text):
            super().keep(text)
            if text.startswith("cancelled"):
                moved.moves, moved.ends = {A: (4, 2)}, True
                moved.turns = 10

    executor = Executor(cluster, Another(), limits=WaveLimits())
    assert undo(cluster, file, drained(), executor) == 1
    assert moved.replicas[A] == (1, 2)
    assert not moved.moves


@pytest.mark.parametrize("before", ["*", "/a"])
def test_a_broker_that_was_cordoned_before_is_cordoned_again(moved, cluster, file, before):
    moved.place((3, 2), (2, 3))
    moved.settings["1"][CORDONED] = "*"
    assert take_back(cluster, file, drained(cordons={1: before})) == 2
    assert moved.settings["1"][CORDONED] == before


def test_a_broker_that_is_cordoned_by_somebody_else_is_told_before_anything_is_changed(
    moved, cluster, file
):
    moved.place((3, 2), (2, 3))
    moved.settings["1"][CORDONED] = "*"
    with pytest.raises(CommandError) as told:
        take_back(cluster, file, drained(cordons={}))
    assert str(told.value) == (
        "nothing was changed: replicas would go back to broker 1, which can't take them: start "
        "those that are dead, and uncordon the others"
    )
    assert not moved.history
    assert not file.exists()


def test_dead_brokers_are_told_before_anything_is_changed(moved, cluster, file):
    moved.place((3, 4), (4, 3))
    moved.stop_broker(1)
    moved.stop_broker(2)
    with pytest.raises(CommandError, match="would go back to brokers 1, 2, which can't take them"):
        take_back(cluster, file, drained())
    assert not moved.history
    assert not file.exists()


def test_a_dead_broker_that_has_its_replicas_still_is_no_reason_to_refuse(moved, cluster, file):
    moved.place((1, 2), (2, 3))
    moved.stop_broker(1)
    moved.moves = {A: (3, 2)}
    moved.ends = False
    state = drained(before={A: (1, 2)}, plan={A: (3, 2)})
    assert take_back(cluster, file, state) == 0
    assert moved.replicas[A] == (1, 2)
    assert ("set", "1", CORDONED, None) not in moved.history


class Killed(BaseException):
    """The process is gone."""


def test_it_goes_on_where_it_was_killed(moved, cluster, file, monkeypatch):
    moved.place((3, 2), (2, 3))
    moved.settings["1"][CORDONED] = "*"
    state = drained(cordons={1: "/a"})
    write_state(file, state)

    def dies(*_):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(executor_module, "elect_leaders", dies)
        with pytest.raises(Killed):
            take_back(cluster, file, state)
    left = read_state(file, "fake", "drain")
    assert left is not None
    assert left.phase is Phase.UNDOING
    assert left.is_throttled, "the throttle may be left over"
    assert (left.before, left.cordons) == (state.before, state.cordons)
    assert take_back(cluster, file, left) == 0
    assert moved.replicas == {A: (1, 2), B: (2, 1)}
    assert moved.partition("t", 0).leader == 1
    assert moved.settings["1"][CORDONED] == "/a"


def test_replicas_that_another_command_moves_again_and_again_are_told(
    moved, cluster, file, monkeypatch
):
    moved.place((3, 2), (2, 3))

    def moved_away(_cluster, wave):
        for tp in wave:
            moved.replicas[tp] = moved.isr[tp] = (4, 3)

    monkeypatch.setattr(executor_module, "elect_leaders", moved_away)
    with pytest.raises(CommandError, match="still moved by another command"):
        take_back(cluster, file, drained())
    assert phase_of(file) is Phase.UNDOING
