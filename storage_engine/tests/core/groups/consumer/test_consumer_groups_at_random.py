"""Random faults around the real coordinator of a consumer group: what must always hold, what must
come once the faults stop, and that the world notices when a rule is missing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.coordinator_log import StateLog
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups import migration
from storage_engine.core.groups.consumer import targets
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer.membership import GroupMembership
from storage_engine.core.groups.consumer.records import CurrentAssignmentKey
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.tests.core.groups.consumer.consumer_members import Violation
from storage_engine.tests.core.groups.consumer.consumer_world import World

HAPPENINGS = 2_500
SEEDS_TRIED = 40
"""Until a missing rule shows."""


def live(seed: int, factory=GroupCoordinator, classic: int = 0) -> World:
    world = World(seed, factory, classic=classic)
    for _ in range(HAPPENINGS):
        world.happen()
    world.settle()
    return world


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_no_partition_is_committed_by_two_and_all_is_shared_out_in_the_end(seed):
    live(seed)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_holds_while_targets_are_computed_beside_the_loop(seed):
    short, targets.SHORT_WORK = targets.SHORT_WORK, 0
    try:
        live(seed)
    finally:
        targets.SHORT_WORK = short


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_holds_while_the_group_migrates(seed):
    live(seed, classic=3)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_holds_while_the_group_migrates_in_pieces(seed):
    at_once, migration.AT_ONCE = migration.AT_ONCE, 1
    try:
        live(seed, classic=3)
    finally:
        migration.AT_ONCE = at_once


def test_much_happens_in_spite_of_the_faults():
    worlds = [live(seed) for seed in range(4)]
    assert sum(world.moves for world in worlds) > 50
    assert sum(world.commits for world in worlds) > 30
    assert sum(world.late_commits for world in worlds) > 10
    assert sum(world.elections for world in worlds) > 15


class _CountsWrong(ConsumerGroup):
    __slots__ = ()

    def _let_go(self, member_id, topic_id, numbers):
        """The partitions stay in the index."""


class _Trusts(ConsumerGroup):
    __slots__ = ()

    def check_commit(self, event):
        return ErrorCode.NONE


class _GivesEarly(ConsumerGroup):
    __slots__ = ()

    def is_free_for(self, member_id, topic_id, partition):
        return True


def with_groups(kind: type[ConsumerGroup]):
    def make(*how) -> GroupCoordinator:
        coordinator = GroupCoordinator(*how)
        step = coordinator.step

        def with_kind(event):
            for group in coordinator.groups.values():
                if isinstance(group, ConsumerGroup):
                    group.__class__ = kind
            return step(event)

        coordinator.step = with_kind  # type: ignore[method-assign]
        return coordinator

    return make


class _AnswersAtOnce(StateLog):
    __slots__ = ()

    def after(self, number, action):
        action()


class _SplitsBatches(StateLog):
    __slots__ = ()

    def append(self, entry, *, producer=None, with_last=False):
        return super().append(entry, producer=producer)


def with_log(kind: type[StateLog]):
    def make(*how) -> GroupCoordinator:
        coordinator = GroupCoordinator(*how)
        coordinator._log.__class__ = kind
        return coordinator

    return make


class _Membership(GroupMembership):
    """Without the rule that is named."""

    rule = ""

    def reconcile(self, group, member_id, owned, at):
        if self.rule == "partitions are given up before the next epoch":
            owned = {}
        super().reconcile(group, member_id, owned, at)

    def write(self, group, key, record, *, with_last=True):
        is_end = record is None and isinstance(key, CurrentAssignmentKey)
        if is_end and self.rule == "a member's assignment ends with it":
            return
        super().write(group, key, record, with_last=with_last)

    def raise_epoch(self, group, *, with_last=True):
        if self.rule != "a change begins another epoch":
            super().raise_epoch(group, with_last=with_last)


def without(rule: str):
    def make(*how) -> GroupCoordinator:
        coordinator = GroupCoordinator(*how)
        membership = coordinator._consumer._membership
        membership.__class__ = type("_Without", (_Membership,), {"rule": rule})
        return coordinator

    return make


@pytest.mark.parametrize(
    ("factory", "classic"),
    [
        (with_groups(_Trusts), 0),
        (with_groups(_GivesEarly), 0),
        (with_groups(_CountsWrong), 0),
        (with_log(_AnswersAtOnce), 0),
        (without("partitions are given up before the next epoch"), 0),
        (without("a member's assignment ends with it"), 0),
        (without("a change begins another epoch"), 0),
        (with_log(_SplitsBatches), 3),
    ],
)
def test_a_missing_rule_shows(factory, classic):
    for seed in range(SEEDS_TRIED):
        try:
            live(seed, factory, classic)
        except (Violation, AssertionError, KeyError):
            return
    raise AssertionError("nothing showed")
