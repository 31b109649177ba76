"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members of consumer groups that still speak the
classic protocol. Their generation is their member epoch: when the group has another one they are
told to join again, and each join takes them a step further to their target.

    JoinGroup   what the member owns is in its subscription; answered at once, without a leader
    SyncGroup   answered with the partitions that the member has now
    Heartbeat   REBALANCE_IN_PROGRESS when another join would change what the member has

Source: KIP-848."""

from collections.abc import Callable
from typing import NamedTuple

from storage_engine.core.coordinator_log import Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.busy_groups import BusyGroups
from storage_engine.core.groups.classic.offers import OFFERED_MAX_BYTES
from storage_engine.core.groups.consumer.group import ConsumerGroup, protocols_bytes
from storage_engine.core.groups.consumer.heartbeat_checks import TOPICS_MAX
from storage_engine.core.groups.consumer.membership import GroupMembership
from storage_engine.core.groups.consumer.records import (
    ClassicMemberRecord,
    ConsumerMemberRecord,
    MemberState,
)
from storage_engine.core.groups.consumer.targets import Targets
from storage_engine.core.groups.consumer.topics import Topics
from storage_engine.core.groups.consumer_protocol import (
    MemberSubscription,
    decode_subscription,
    topic_count,
    write_assignment,
)
from storage_engine.core.groups.events import (
    NO_MEMBER,
    GroupLog,
    Join,
    Joined,
    Leave,
    Left,
    MemberHeartbeat,
    RequestingMember,
    Sync,
    Synced,
)
from storage_engine.core.groups.group import CONSUMER
from storage_engine.core.groups.migration import Migration
from storage_engine.core.groups.settings import GroupSettings

METADATA_MAX_BYTES = 1 << 20
"""The bytes of a subscription that is decoded."""

PROTOCOLS_MAX_BYTES = 4 << 20
"""All protocols of a member, which are in its record."""

Remove = Callable[[ConsumerGroup, list[str], Moment, Callable[[], None]], None]


class ClassicCaller(NamedTuple):
    """A member of the classic protocol."""

    member_id: str
    record: ConsumerMemberRecord
    classic: ClassicMemberRecord


class ClassicMembers:
    def __init__(
        self,
        log: GroupLog,
        settings: GroupSettings,
        topics: Topics,
        membership: GroupMembership,
        targets: Targets,
        migration: Migration,
        busy: BusyGroups,
        remove: Remove,
    ) -> None:
        self._log = log
        self._settings = settings
        self._topics = topics
        self._membership = membership
        self._targets = targets
        self._migration = migration
        self._busy = busy
        self._remove = remove

    # --- JoinGroup ---

    def join(self, group: ConsumerGroup, event: Join) -> bool:
        """Return False when the group has become a classic one, to which the join belongs: the
        member takes the place of the last one that spoke the consumer protocol."""
        subscription, code = self._check_join(group, event)
        if subscription is None:
            self._refuse_join(event, code, event.member_id)
            return True
        if event.member_id == NO_MEMBER and event.instance_id is None and event.asks_for_id:
            self._refuse_join(event, ErrorCode.MEMBER_ID_REQUIRED, event.fresh_member_id)
            return True
        member_id = event.member_id or event.fresh_member_id
        replaced = group.instances.get(event.instance_id or NO_MEMBER)
        if replaced is not None and replaced != member_id:
            if self._migration.downgrades_without(group, [replaced]):
                if self._migration.downgrade(group, [replaced], event.at, lambda: None):
                    return False
                self._busy.put_first(event)
                return True
            self._membership.replace(group, replaced, member_id, event.at)
        self._take_up(group, member_id, event, subscription)
        self._targets.advance(group)
        owned = {
            shape.topic_id: subscription.owned[name]
            for name, shape in self._topics.of(subscription.owned).items()
        }
        self._membership.reconcile(group, member_id, owned, event.at)
        session = group.sessions[member_id]
        session.join_by_ms = None
        session.sync_by_ms = event.at.now_ms + event.rebalance_timeout_ms
        self._membership.touch(group, member_id, event.at)
        self._membership.plan(group, member_id)
        answer = Joined(
            request=event.request,
            member_id=member_id,
            generation=group.current(member_id).member_epoch,
            protocol_type=CONSUMER,
            protocol=event.protocols[0][0],
        )
        self._log.answer(answer, after=session.number)
        return True

    def _check_join(
        self, group: ConsumerGroup, event: Join
    ) -> tuple[MemberSubscription | None, ErrorCode]:
        settings, member_id = self._settings, event.member_id
        has_place = member_id in group.members or event.instance_id in group.instances
        if group.size >= settings.consumer.max_size and not has_place:
            return None, ErrorCode.GROUP_MAX_SIZE_REACHED
        if self._topics.shapes is None:
            return None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if event.instance_id is not None and member_id != NO_MEMBER:
            known = group.instances.get(event.instance_id)
            if known is None:
                return None, ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return None, ErrorCode.FENCED_INSTANCE_ID
        if not _supports(group, event):
            return None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        metadata, size = event.protocols[0][1], protocols_bytes(event.protocols)
        is_too_long = (
            len(metadata) > METADATA_MAX_BYTES
            or topic_count(metadata) > TOPICS_MAX
            or size > PROTOCOLS_MAX_BYTES
            or group.protocols_bytes - _bytes_before(group, event) + size > OFFERED_MAX_BYTES
        )
        if is_too_long:
            return None, ErrorCode.INVALID_REQUEST
        subscription = decode_subscription(metadata)
        code = ErrorCode.INVALID_REQUEST if subscription is None else ErrorCode.NONE
        return subscription, code

    def _refuse_join(self, event: Join, code: ErrorCode, member_id: str) -> None:
        self._log.emit(Joined(request=event.request, error=code, member_id=member_id))

    def _take_up(
        self, group: ConsumerGroup, member_id: str, event: Join, subscription: MemberSubscription
    ) -> None:
        before = group.members.get(member_id)
        record = ConsumerMemberRecord(
            instance_id=event.instance_id,
            rack_id=subscription.rack_id,
            client_id=event.client_id,
            client_host=event.client_host,
            topics=subscription.topics,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            classic=ClassicMemberRecord(
                session_timeout_ms=event.session_timeout_ms, protocols=event.protocols
            ),
        )
        if record == before:
            return
        self._membership.put(group, member_id, record, event.at)
        if before is None or (before.topics, before.pattern) != (record.topics, None):
            self._membership.raise_epoch(group)

    # --- SyncGroup and Heartbeat ---

    def sync(self, group: ConsumerGroup, event: Sync) -> None:
        found = self._present(group, event.caller)
        if isinstance(found, ErrorCode):
            self._log.refuse(event.request, found)
            return
        member_id, classic = found.member_id, found.classic
        protocol, metadata = classic.protocols[0]
        session = group.sessions[member_id]
        if event.protocol_type not in (None, CONSUMER) or event.protocol not in (None, protocol):
            self._log.refuse(event.request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        current = group.current(member_id)
        has_to_revoke = current.state is MemberState.UNREVOKED_PARTITIONS
        if current.member_epoch < group.target_epoch and not has_to_revoke:
            self._await_join(group, found, event.at)
            self._log.refuse(event.request, ErrorCode.REBALANCE_IN_PROGRESS)
            return
        session.sync_by_ms = None
        self._membership.touch(group, member_id, event.at)
        subscription = decode_subscription(metadata)
        version = 0 if subscription is None else subscription.version
        answer = Synced(
            request=event.request,
            protocol_type=CONSUMER,
            protocol=protocol,
            assignment=write_assignment(version, self._names(found.record, current.assigned)),
        )
        self._log.answer(answer, after=session.number)

    def _names(
        self, record: ConsumerMemberRecord, assigned: Assignment
    ) -> dict[str, frozenset[int]]:
        """Return the partitions by name of the topic; without those of topics that are gone."""
        shapes = self._topics.of(record.topics)
        found = ((name, assigned.get(topic_id)) for name, (topic_id, _) in shapes.items())
        return {name: numbers for name, numbers in found if numbers}

    def heartbeat(self, group: ConsumerGroup, event: MemberHeartbeat) -> None:
        found = self._present(group, event.caller)
        if isinstance(found, ErrorCode):
            self._log.refuse(event.request, found)
            return
        self._membership.touch(group, found.member_id, event.at)
        self._targets.advance(group)
        code = ErrorCode.NONE
        if self._has_to_join(group, found.member_id):
            self._await_join(group, found, event.at)
            code = ErrorCode.REBALANCE_IN_PROGRESS
        self._log.refuse(event.request, code)

    def _has_to_join(self, group: ConsumerGroup, member_id: str) -> bool:
        """Return True when a join would take the member further."""
        current = group.current(member_id)
        if current.member_epoch < group.target_epoch:
            return True
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        return current.state is MemberState.UNRELEASED_PARTITIONS and not self._waits(
            group, member_id, current.assigned
        )

    def _waits(self, group: ConsumerGroup, member_id: str, assigned: Assignment) -> bool:
        """Return True while another member holds a partition of the member's target."""
        nothing: frozenset[int] = frozenset()
        return any(
            not group.is_free_for(member_id, topic_id, number)
            for topic_id, numbers in group.target(member_id).items()
            for number in numbers - assigned.get(topic_id, nothing)
        )

    def _await_join(self, group: ConsumerGroup, found: ClassicCaller, at: Moment) -> None:
        session = group.sessions[found.member_id]
        if session.join_by_ms is None:
            session.join_by_ms = at.now_ms + found.record.rebalance_timeout_ms
            self._membership.plan(group, found.member_id)

    def _present(self, group: ConsumerGroup, caller: RequestingMember) -> ClassicCaller | ErrorCode:
        """Return the calling member when it is of the present generation, its member epoch."""
        found = _found(group, caller)
        if isinstance(found, ErrorCode):
            return found
        if group.current(found.member_id).member_epoch != caller.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return found

    # --- LeaveGroup ---

    def leave(self, group: ConsumerGroup, event: Leave) -> None:
        codes: list[ErrorCode] = []
        leaving: dict[str, None] = {}
        for caller in event.members:
            found = _found(group, caller)
            if isinstance(found, ErrorCode):
                codes.append(found)
            elif found.member_id in leaving:
                codes.append(ErrorCode.UNKNOWN_MEMBER_ID)
            else:
                leaving[found.member_id] = None
                codes.append(ErrorCode.NONE)
        answer = Left(request=event.request, codes=tuple(codes))

        def left() -> None:
            self._log.answer(answer, after=self._log.appended if leaving else group.number)

        if leaving:
            self._remove(group, list(leaving), event.at, left)
        else:
            left()


def _found(group: ConsumerGroup, caller: RequestingMember) -> ClassicCaller | ErrorCode:
    """Return the calling member of the classic protocol, of whatever generation. Without a member
    id the instance id alone names it, as for an operator."""
    member_id = caller.member_id
    if caller.instance_id is not None:
        known = group.instances.get(caller.instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id not in (NO_MEMBER, known):
            return ErrorCode.FENCED_INSTANCE_ID
        member_id = known
    record = group.members.get(member_id)
    if record is None or record.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ClassicCaller(member_id, record, record.classic)


def _before(group: ConsumerGroup, event: Join) -> ClassicMemberRecord | None:
    """Return what the member was that joins again, or whose instance id it has."""
    place = group.instances.get(event.instance_id or NO_MEMBER, NO_MEMBER)
    record = group.members.get(event.member_id) or group.members.get(place)
    return None if record is None else record.classic


def _bytes_before(group: ConsumerGroup, event: Join) -> int:
    before = _before(group, event)
    return 0 if before is None else protocols_bytes(before.protocols)


def _supports(group: ConsumerGroup, event: Join) -> bool:
    """Return True when all members of the classic protocol have a protocol in common with this."""
    names = {name for name, _ in event.protocols}
    if event.protocol_type != CONSUMER or not names:
        return False
    before, others = _before(group, event), group.classic_count
    own: set[str] = set()
    if before is not None:
        own = {name for name, _ in before.protocols}
        others -= 1
    return any(group.with_protocol.get(name, 0) - (name in own) == others for name in names)
