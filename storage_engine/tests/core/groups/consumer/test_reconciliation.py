"""A member goes to its target step by step, and gets only what no other member holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.groups.consumer.reconciliation import (
    NEW_MEMBER,
    includes,
    meet,
    next_assignment,
)
from storage_engine.core.groups.consumer.records import CurrentAssignmentRecord, MemberState
from storage_engine.tests.core.groups.consumer.consumer_bench import topic_id

T = topic_id("t")


def of(*partitions: int):
    return {T: frozenset(partitions)} if partitions else {}


def current(*partitions: int, epoch: int = 1, state=MemberState.STABLE, revoking=()):
    return CurrentAssignmentRecord(
        member_epoch=epoch,
        previous_epoch=epoch,
        state=state,
        assigned=of(*partitions),
        pending_revocation=of(*revoking),
    )


def step(before, target, owned=None, *, epoch: int = 2, held_by_others=()):
    return next_assignment(
        before, epoch, of(*target), owned, lambda _, number: number not in held_by_others
    )


def test_a_member_with_its_target_stays_as_it_is():
    before = current(0, 1)
    assert step(before, [0, 1], epoch=1) is before


def test_a_member_that_keeps_all_reaches_the_next_epoch_at_once():
    after = step(current(0, 1), [0, 1, 2])
    assert (after.member_epoch, after.previous_epoch, after.state) == (2, 1, MemberState.STABLE)
    assert after.assigned == of(0, 1, 2)


def test_partitions_are_given_up_before_others_are_given():
    after = step(current(0, 1), [1, 2])
    assert (after.member_epoch, after.state) == (1, MemberState.UNREVOKED_PARTITIONS)
    assert (after.assigned, after.pending_revocation) == (of(1), of(0))
    for owned in (None, of(0, 1)):
        assert step(after, [1, 2], owned) is after
    done = step(after, [1, 2], of(1))
    assert (done.member_epoch, done.assigned) == (2, of(1, 2))


def test_a_member_that_never_held_what_is_taken_goes_on_at_once():
    after = step(current(0, 1), [1], of(1))
    assert (after.member_epoch, after.state) == (2, MemberState.STABLE)


def test_partitions_that_others_hold_are_waited_for():
    after = step(current(0), [0, 1, 2], held_by_others=[1])
    assert (after.member_epoch, after.state) == (2, MemberState.UNRELEASED_PARTITIONS)
    assert after.assigned == of(0, 2)
    assert step(after, [0, 1, 2], held_by_others=[1]) is after
    done = step(after, [0, 1, 2])
    assert (done.state, done.assigned) == (MemberState.STABLE, of(0, 1, 2))


def test_a_member_that_waits_gives_up_what_a_newer_target_takes():
    waits = current(0, 1, epoch=2, state=MemberState.UNRELEASED_PARTITIONS)
    after = step(waits, [0, 5], epoch=3, held_by_others=[5])
    assert (after.member_epoch, after.pending_revocation) == (2, of(1))


def test_a_member_that_has_given_up_leaves_its_epoch_even_if_more_is_taken():
    before = current(1, 2, state=MemberState.UNREVOKED_PARTITIONS, revoking=[0])
    after = step(before, [1], of(1, 2), epoch=4)
    assert (after.member_epoch, after.state) == (2, MemberState.UNREVOKED_PARTITIONS)
    assert after.pending_revocation == of(2)


def test_a_new_member_gets_what_is_free():
    after = step(NEW_MEMBER, [0, 1], {}, held_by_others=[0])
    assert (after.member_epoch, after.assigned) == (2, of(1))


partitions = st.frozensets(st.integers(0, 5))


@given(partitions, partitions, partitions, partitions, st.booleans(), partitions)
def test_no_step_gives_what_others_hold_or_takes_what_is_not_given_up(
    assigned, revoking, target, others, says, owned
):
    revoking = revoking - assigned
    others = others - assigned - revoking
    state = MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE
    before = current(*assigned, state=state, revoking=revoking)
    after = step(before, target, of(*owned) if says else None, held_by_others=others)
    holds = after.assigned.get(T, frozenset()) | after.pending_revocation.get(T, frozenset())
    assert not holds & others
    given_up = (assigned | revoking) - holds
    assert not (given_up & owned if says else given_up)
    assert after.assigned.get(T, frozenset()) <= target | assigned
    assert before.member_epoch <= after.member_epoch <= 2
    if given_up:
        assert after.member_epoch > before.member_epoch, "its commits are stale from now on"


@pytest.mark.parametrize(
    ("one", "other", "is_part", "have_common"),
    [
        (of(0, 1), of(1), True, True),
        (of(0, 1), of(1, 2), False, True),
        (of(0), of(1), False, False),
        (of(), of(1), False, False),
        (of(0), of(), True, False),
    ],
)
def test_assignments_are_compared_by_partition(one, other, is_part, have_common):
    assert includes(one, other) is is_part
    assert meet(one, other) is have_common
