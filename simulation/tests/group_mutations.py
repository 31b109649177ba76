"""Deliberate bugs of consumer groups, each a patch of the real code: what the simulation must find
with members of a group. The rules of `mutations` hold here."""

from contextlib import ExitStack
from typing import Any

from simulation.run import run_seed
from simulation.tests.mutations import Apply, mutated, set_attribute
from storage_engine.broker.coordinators.runner import CoordinatorRunner
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer import targets
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer.heartbeats import ConsumerHeartbeats
from storage_engine.core.groups.consumer.membership import GroupMembership
from storage_engine.core.groups.consumer.records import (
    ConsumerGroupKey,
    ConsumerMemberKey,
    CurrentAssignmentKey,
)
from storage_engine.core.groups.records import GroupKey

MUTATIONS: dict[str, Apply] = {}


def mutation(apply: Apply) -> Apply:
    MUTATIONS[apply.__name__] = apply
    return apply


def failure_of(name: str, seed: int, seconds: int) -> str | None:
    """The promise that a seed finds broken under a mutation; for a process of its own."""
    with mutated(MUTATIONS[name]):
        return run_seed(seed, seconds=seconds, groups=True).rule


@mutation
def partitions_given_before_their_owner_let_them_go(stack: ExitStack) -> None:
    set_attribute(stack, ConsumerGroup, "is_free_for", lambda *_: True)


@mutation
def partitions_free_once_their_owner_is_asked_for_them(stack: ExitStack) -> None:
    """What a member has yet to give up is nobody's in memory."""
    count = ConsumerGroup._count_current

    def forget_pending(self: Any, member_id: str, before: Any, record: Any) -> None:
        count(self, member_id, before, record)
        if record is not None:
            for topic_id, numbers in record.pending_revocation.items():
                self._let_go(member_id, topic_id, numbers)

    set_attribute(stack, ConsumerGroup, "_count_current", forget_pending)


@mutation
def epochs_not_checked_on_commits(stack: ExitStack) -> None:
    set_attribute(stack, ConsumerGroup, "_check_epoch", lambda *_: ErrorCode.NONE)


@mutation
def tombstones_of_assignments_forgotten(stack: ExitStack) -> None:
    _forget(stack, CurrentAssignmentKey)


@mutation
def tombstones_of_members_forgotten(stack: ExitStack) -> None:
    _forget(stack, ConsumerMemberKey)


def _forget(stack: ExitStack, kind: type) -> None:
    """Apply such tombstones, and do not write them."""
    write = GroupMembership.write

    def write_others(self: Any, group: Any, key: Any, record: Any, **how: Any) -> None:
        if isinstance(key, kind) and record is None:
            group.apply(key, record)
        else:
            write(self, group, key, record, **how)

    set_attribute(stack, GroupMembership, "write", write_others)


@mutation
def conversions_in_two_batches(stack: ExitStack) -> None:
    """A failover between the two finds half of the group."""
    encode = CoordinatorRunner._encode

    def halve(self: Any, records: Any) -> Any:
        changed = {type(each.entry[0]) for each in records}
        if not {GroupKey, ConsumerGroupKey} <= changed:
            return encode(self, records)
        middle = len(records) // 2
        return encode(self, records[:middle]) + encode(self, records[middle:])

    set_attribute(stack, CoordinatorRunner, "_encode", halve)


@mutation
def heartbeats_answered_before_their_records_are_replicated(stack: ExitStack) -> None:
    beat = ConsumerHeartbeats._beat

    def answer_at_once(self: Any, *what: Any, **how: Any) -> None:
        with ExitStack() as inner:
            set_attribute(
                inner, type(self._log), "answer", lambda log, answer, after: log.emit(answer)
            )
            beat(self, *what, **how)

    set_attribute(stack, ConsumerHeartbeats, "_beat", answer_at_once)


@mutation
def targets_of_deleted_topics_kept(stack: ExitStack) -> None:
    compute = targets.compute

    def keep(assignor: Any, members: Any, known: Any, patterns: Any, topics: Any) -> Any:
        found = compute(assignor, members, known, patterns, topics)
        ids = {shape.topic_id for shape in topics.values()}
        for member_id, before in known.items():
            gone = {each: n for each, n in before.assignment.items() if each not in ids}
            if member_id in found:
                found[member_id] = {**gone, **found[member_id]}
        return found

    set_attribute(stack, targets, "compute", keep)


@mutation
def sessions_that_end_too_early(stack: ExitStack) -> None:
    """A heartbeat without news does not begin the session anew."""
    touch = GroupMembership.touch

    def touch_once(self: Any, group: Any, member_id: str, at: Any) -> None:
        session = group.sessions[member_id]
        before = session.deadline_ms
        touch(self, group, member_id, at)
        if before > at.now_ms and group.members[member_id].classic is None:
            session.deadline_ms = before
            self.plan(group, member_id)

    set_attribute(stack, GroupMembership, "touch", touch_once)
