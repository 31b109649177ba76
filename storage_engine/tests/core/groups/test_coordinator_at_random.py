"""Random faults around the real coordinator of a group: what must always hold, what must come once
the faults stop, and that the world notices when a rule is missing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.coordinator_log import StateLog
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.tests.core.groups.group_world import Violation, World

HAPPENINGS = 3_000
SEEDS_TRIED = 40
"""Until a missing rule shows."""


def live(seed: int, factory=GroupCoordinator) -> World:
    world = World(seed, factory)
    for _ in range(HAPPENINGS):
        world.happen()
    world.settle()
    return world


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_no_partition_has_two_owners_and_no_offset_is_lost(seed):
    live(seed)


def test_much_happens_in_spite_of_the_faults():
    worlds = [live(seed) for seed in range(4)]
    assert sum(world.generations for world in worlds) > 15
    assert sum(world.commits for world in worlds) > 30
    assert sum(world.elections for world in worlds) > 15


class _AnswersAtOnce(StateLog):
    __slots__ = ()

    def after(self, number, action):
        action()


def answers_at_once(*how) -> GroupCoordinator:
    coordinator = GroupCoordinator(*how)
    coordinator._log.__class__ = _AnswersAtOnce
    return coordinator


class _TrustsGenerations(ClassicGroup):
    __slots__ = ()

    def check_generation(self, caller):
        return self.check(caller)


def with_groups(kind: type[ClassicGroup]):
    def make(*how) -> GroupCoordinator:
        coordinator = GroupCoordinator(*how)
        step = coordinator.step

        def with_kind(event):
            for group in coordinator.groups.values():
                group.__class__ = kind
            return step(event)

        coordinator.step = with_kind  # type: ignore[method-assign]
        return coordinator

    return make


def never_waits_for_members(*how) -> GroupCoordinator:
    """A generation begins with whoever is there: those who are not keep what they have."""
    coordinator = GroupCoordinator(*how)
    rebalances = coordinator._rebalances

    def prepare(group, at):
        group.state = GroupState.COMPLETING
        for member_id, request in group.take_joined().items():
            answer = rebalances.joined(group, group.members[member_id], request)
            coordinator._log.emit(answer)

    rebalances.prepare = prepare  # type: ignore[method-assign]
    return coordinator


@pytest.mark.parametrize(
    "rules",
    [answers_at_once, with_groups(_TrustsGenerations), never_waits_for_members],
    ids=["answers at once", "trusts generations", "never waits for members"],
)
def test_a_missing_rule_shows(rules):
    with pytest.raises((Violation, AssertionError, KeyError)):
        for seed in range(SEEDS_TRIED):
            live(seed, rules)
