"""Takes a member from the partitions that it has to its target, one step at each heartbeat. A
partition is given to a member only while no other member holds it.

    STABLE                  has its target of its epoch    a newer target: one of the three
    UNREVOKED_PARTITIONS    has to give partitions up,     says that it has: one of the three
                            and keeps its epoch
    UNRELEASED_PARTITIONS   has the newest epoch, and      others let go: gets what is free
                            waits for what others hold

Source: KIP-848.
"""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.consumer.records import CurrentAssignmentRecord, MemberState

IsFree = Callable[[UUID, int], bool]
"""Whether no other member holds a partition."""

NEW_MEMBER = CurrentAssignmentRecord(
    member_epoch=0,
    previous_epoch=0,
    state=MemberState.STABLE,
    assigned={},
    pending_revocation={},
)
"""A member that has joined and has nothing yet."""

NONE: frozenset[int] = frozenset()


def includes(whole: Assignment, part: Assignment) -> bool:
    return all(part[topic] <= whole.get(topic, NONE) for topic in part)


def meet(one: Assignment, other: Assignment) -> bool:
    """Return True when the two have a partition in common."""
    return any(not one[topic].isdisjoint(other.get(topic, NONE)) for topic in one)


def next_assignment(
    current: CurrentAssignmentRecord,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: IsFree,
) -> CurrentAssignmentRecord:
    """Return the member's next step; `current` itself when there is none. `owned` is all that the
    member holds by its own word; None: it has not said."""
    epoch = current.member_epoch
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or meet(current.pending_revocation, owned):
            return current
        # It has left the epoch in which it held them.
        epoch += 1
    elif current.state is MemberState.STABLE and epoch == target_epoch:
        return current
    step = _step(current, min(epoch, target_epoch), target_epoch, target, owned, is_free)
    if step == replace(current, previous_epoch=step.previous_epoch):
        return current
    return step


def _step(
    current: CurrentAssignmentRecord,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: IsFree,
) -> CurrentAssignmentRecord:
    kept: dict[UUID, frozenset[int]] = {}
    revoked: dict[UUID, frozenset[int]] = {}
    for topic, partitions in current.assigned.items():
        wanted = target.get(topic, NONE)
        if stays := partitions & wanted:
            kept[topic] = stays
        if goes := partitions - wanted:
            revoked[topic] = goes
    if revoked and (owned is None or meet(revoked, owned)):
        return CurrentAssignmentRecord(
            member_epoch=epoch,
            previous_epoch=current.member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=revoked,
        )
    waits = False
    for topic, wanted in target.items():
        missing = wanted - kept.get(topic, NONE)
        free = frozenset(number for number in missing if is_free(topic, number))
        waits = waits or len(free) < len(missing)
        if free:
            kept[topic] = kept.get(topic, NONE) | free
    return CurrentAssignmentRecord(
        member_epoch=target_epoch,
        previous_epoch=current.member_epoch,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        assigned=kept,
        pending_revocation={},
    )
