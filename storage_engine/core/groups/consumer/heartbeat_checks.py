"""The checks of ConsumerGroupHeartbeat, with the errors of Kafka. Nothing is changed before all of
them are done. Source: KIP-848."""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer.events import (
    JOINING_EPOCH,
    LEAVING_FOR_A_MOMENT_EPOCH,
    NO_TIMEOUT,
    ConsumerHeartbeat,
    HeartbeatAnswer,
)
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer.patterns import PATTERNS_MAX
from storage_engine.core.groups.consumer.reconciliation import NONE
from storage_engine.core.groups.consumer.records import (
    ConsumerMemberRecord,
    CurrentAssignmentRecord,
    MemberState,
)

TOPICS_MAX = 10_000
"""Topics that a member may subscribe to by name: each is looked up when the member comes or
goes."""

TOPICS_MAX_BYTES = 4 << 20
"""The names of those topics, which are in the member's record."""

NAMED_MAX = 1_000_000
"""Names in the different subscriptions of a group, which stay in memory."""


class Refusal(NamedTuple):
    code: ErrorCode
    message: str


def refused(event: ConsumerHeartbeat, refusal: Refusal) -> HeartbeatAnswer:
    return HeartbeatAnswer(
        request=event.request,
        error=refusal.code,
        member_id=event.member_id,
        member_epoch=event.member_epoch,
        message=refusal.message,
    )


def no_consumer_group(group_id: str) -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} is not a consumer group")


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def check_request(event: ConsumerHeartbeat, assignors: Collection[str]) -> Refusal | None:
    """Check what does not depend on the group."""
    epoch = event.member_epoch
    if not event.group_id.strip():
        return _invalid("a group id must not be empty")
    for what, given in (("an instance id", event.instance_id), ("a rack id", event.rack_id)):
        if given is not None and not given.strip():
            return _invalid(f"{what} must not be empty: leave it out instead")
    if not event.member_id and (epoch != JOINING_EPOCH or not event.fresh_member_id):
        return _invalid("a member id must not be empty")
    if epoch < LEAVING_FOR_A_MOMENT_EPOCH:
        return _invalid(f"no member has epoch {epoch}: the lowest is {LEAVING_FOR_A_MOMENT_EPOCH}")
    if epoch == LEAVING_FOR_A_MOMENT_EPOCH and event.instance_id is None:
        return _invalid(f"member epoch {epoch} is for static members: give an instance id")
    if epoch == JOINING_EPOCH and (missing := _missing_to_join(event)):
        return _invalid(f"a member that joins must {missing}")
    if event.rebalance_timeout_ms < NO_TIMEOUT:
        return _invalid(f"a rebalance timeout of {event.rebalance_timeout_ms} ms is not possible")
    if event.topics is not None or event.assignor is not None:
        return _check_names(event, assignors)
    return None


def _missing_to_join(event: ConsumerHeartbeat) -> str | None:
    if event.rebalance_timeout_ms < 0:
        return "give its rebalance timeout"
    if event.owned is None or event.owned:
        return "give an empty list of owned partitions"
    if not event.topics and not event.pattern:
        return "subscribe to topics or to a pattern"
    return None


def _check_names(event: ConsumerHeartbeat, assignors: Collection[str]) -> Refusal | None:
    topics = event.topics or frozenset()
    if len(topics) > TOPICS_MAX or sum(map(len, topics)) > TOPICS_MAX_BYTES:
        return _invalid(
            f"a subscription of {len(topics)} topics is too long: subscribe to {TOPICS_MAX} "
            "at most, or to a pattern"
        )
    if event.assignor is not None and event.assignor not in assignors:
        return Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {event.assignor}: use one of {', '.join(assignors)}",
        )
    return None


def check_member(group: ConsumerGroup, event: ConsumerHeartbeat) -> Refusal | None:
    """Check that the member is there, and that nobody has taken its instance id."""
    member_id, instance_id = event.member_id, event.instance_id
    if instance_id is not None:
        known = group.instances.get(instance_id)
        if known is None:
            return Refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {group.group_id} has no member with instance id {instance_id}",
            )
        if known != member_id:
            return Refusal(
                ErrorCode.FENCED_INSTANCE_ID,
                f"member {known} has taken the instance id {instance_id} of member {member_id}",
            )
    if member_id not in group.members:
        return Refusal(
            ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id} has no member {member_id}"
        )
    return None


def check_epoch(
    member_id: str, current: CurrentAssignmentRecord, event: ConsumerHeartbeat
) -> Refusal | None:
    """Check that the member has seen the last answer, or the one before."""
    if current.state is MemberState.UNKNOWN and (event.owned is None or event.owned):
        return _fenced(member_id, "is in a state that this version does not know")
    known = current.member_epoch
    if event.member_epoch == known or is_lost_answer(current, event):
        return None
    return _fenced(member_id, f"has epoch {known}, and not {event.member_epoch}")


def _fenced(member_id: str, reason: str) -> Refusal:
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member_id} {reason}: it has to give up its partitions and join again",
    )


def is_lost_answer(current: CurrentAssignmentRecord, event: ConsumerHeartbeat) -> bool:
    """Return True when the member has not seen the answer with its present epoch, and holds nothing
    that it may not."""
    owned = event.owned
    if owned is None or event.member_epoch != current.previous_epoch:
        return False
    if event.member_epoch >= current.member_epoch:
        return False
    return all(
        numbers <= current.assigned.get(topic, NONE) | current.pending_revocation.get(topic, NONE)
        for topic, numbers in owned.items()
    )


def check_bounds(group: ConsumerGroup, member_id: str, event: ConsumerHeartbeat) -> Refusal | None:
    """Check that the group keeps its bounds with what the member says."""
    pattern, topics = event.pattern, event.topics
    if pattern and pattern not in group.with_pattern and len(group.with_pattern) >= PATTERNS_MAX:
        return _invalid(
            f"group {group.group_id} has {PATTERNS_MAX} different patterns, which is the most"
        )
    if topics is not None and topics not in group.subscriptions:
        before = group.members.get(member_id)
        is_alone = before is not None and group.subscriptions[before.topics].members == 1
        others = group.named_count - (len(before.topics) if before and is_alone else 0)
        if others + len(topics) > NAMED_MAX:
            return Refusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the subscriptions in group {group.group_id} name {others} topics, and may name "
                f"{NAMED_MAX}: use the list of another member, or a pattern",
            )
    return None


def replaced_by(group: ConsumerGroup, member_id: str, event: ConsumerHeartbeat) -> str | None:
    """Return the member whose instance id a member that joins has; None: there is no other."""
    if event.instance_id is None:
        return None
    known = group.instances.get(event.instance_id)
    return None if known == member_id else known


def check_place(group: ConsumerGroup, member_id: str, event: ConsumerHeartbeat) -> Refusal | None:
    """Check that the place of a member that joins is free, or its own."""
    replaced = replaced_by(group, member_id, event)
    if replaced is None:
        if member_id not in group.members:
            return None
        return check_epoch(member_id, group.current(member_id), event)
    if member_id in group.members:
        return _fenced(member_id, "is a member with another instance id")
    is_away = group.current(replaced).member_epoch == LEAVING_FOR_A_MOMENT_EPOCH
    if group.members[replaced].classic is None and not is_away:
        return Refusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"member {replaced} still has instance id {event.instance_id}: stop it first",
        )
    return None


def updated(before: ConsumerMemberRecord | None, event: ConsumerHeartbeat) -> ConsumerMemberRecord:
    """Return what the member says of itself now; `before` itself where it says nothing new. One
    that joins says everything: nothing of the member that it replaces is left."""
    record = before or ConsumerMemberRecord(client_id="", client_host="")
    if event.member_epoch == JOINING_EPOCH:
        record = ConsumerMemberRecord(
            instance_id=record.instance_id, client_id="", client_host="", classic=record.classic
        )
    changes_nothing = (
        event.topics is None
        and event.pattern is None
        and event.assignor is None
        and event.rack_id is None
        and event.instance_id in (None, record.instance_id)
        and event.rebalance_timeout_ms == NO_TIMEOUT
        and event.client.client_id == record.client_id
        and event.client.host == record.client_host
        and record.classic is None
    )
    if before is not None and changes_nothing:
        return before
    pattern, timeout_ms = event.pattern, event.rebalance_timeout_ms
    return replace(
        record,
        instance_id=record.instance_id if event.instance_id is None else event.instance_id,
        rack_id=record.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client.client_id,
        client_host=event.client.host,
        topics=record.topics if event.topics is None else event.topics,
        pattern=record.pattern if pattern is None else pattern or None,
        rebalance_timeout_ms=(
            record.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT else timeout_ms
        ),
        assignor=record.assignor if event.assignor is None else event.assignor,
        classic=None,
    )
