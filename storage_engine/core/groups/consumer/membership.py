"""Writes what happens to the members of consumer groups, and watches over their time.

A tombstone of a member's assignment comes before that of the member, and the group's epoch is in
one batch with what has raised it, so that a failover between them loses no rebalance. Source:
KIP-848."""

from collections.abc import Collection

from storage_engine.core.coordinator_log import Moment
from storage_engine.core.groups.assignors.assignment import Assignment
from storage_engine.core.groups.consumer.events import GroupSettingsChanged
from storage_engine.core.groups.consumer.group import ConsumerGroup, MemberSession
from storage_engine.core.groups.consumer.reconciliation import next_assignment
from storage_engine.core.groups.consumer.records import (
    ConsumerGroupKey,
    ConsumerGroupRecord,
    ConsumerMemberKey,
    ConsumerMemberRecord,
    ConsumerRecord,
    ConsumerRecordKey,
    CurrentAssignmentKey,
    CurrentAssignmentRecord,
    MemberState,
    PartitionMetadataKey,
    PatternKey,
    TargetMemberKey,
    TargetMemberRecord,
)
from storage_engine.core.groups.deadlines import DeadlineKey, Deadlines
from storage_engine.core.groups.events import GroupLog
from storage_engine.core.groups.settings import ConsumerSettings


class GroupTimes:
    """The session timeout and heartbeat interval of each group."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self._changed: dict[str, GroupSettingsChanged] = {}
        """The groups with settings of their own; as many as administrators have made."""

    def change(self, event: GroupSettingsChanged) -> None:
        if event.session_timeout_ms is None and event.heartbeat_interval_ms is None:
            self._changed.pop(event.group_id, None)
        else:
            self._changed[event.group_id] = event

    def session_timeout_ms(self, group_id: str) -> int:
        settings, own = self._settings, self._changed.get(group_id)
        if own is None or own.session_timeout_ms is None:
            return settings.session_timeout_ms
        lowest, highest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        return max(lowest, min(own.session_timeout_ms, highest))

    def heartbeat_interval_ms(self, group_id: str) -> int:
        settings, own = self._settings, self._changed.get(group_id)
        if own is None or own.heartbeat_interval_ms is None:
            return settings.heartbeat_interval_ms
        lowest, highest = settings.min_heartbeat_interval_ms, settings.max_heartbeat_interval_ms
        return max(lowest, min(own.heartbeat_interval_ms, highest))


class GroupMembership:
    def __init__(self, log: GroupLog, times: GroupTimes, deadlines: Deadlines) -> None:
        self._log = log
        self._times = times
        self._deadlines = deadlines
        self.rebalances = 0
        """How often a group has got another epoch since the coordinator began."""

    def write(
        self,
        group: ConsumerGroup,
        key: ConsumerRecordKey,
        record: ConsumerRecord | None,
        *,
        with_last: bool = True,
    ) -> None:
        """Append a record and apply it. By default it is in one batch with the last of the step."""
        group.apply(key, record)
        group.number = self._log.append((key, record), with_last=with_last)

    def raise_epoch(self, group: ConsumerGroup, *, with_last: bool = True) -> None:
        """Begin another epoch, for which a target has to be computed."""
        self.rebalances += 1
        epoch = max(group.epoch, group.target_epoch) + 1
        record = ConsumerGroupRecord(epoch=epoch, metadata_hash=group.topics_seen().hash)
        self.write(group, ConsumerGroupKey(group.group_id), record, with_last=with_last)
        if group.content.has_partition_metadata:
            # The hash says the same.
            self.write(group, PartitionMetadataKey(group.group_id), None)

    def put(
        self, group: ConsumerGroup, member_id: str, record: ConsumerMemberRecord, at: Moment
    ) -> None:
        """Take up what a member says of itself; it may be new."""
        before = group.members.get(member_id)
        self.write(group, ConsumerMemberKey(group.group_id, member_id), record)
        if before is not None:
            self._drop_pattern(group, before)
        session = group.sessions.get(member_id)
        timeout_ms = self._timeout_ms(group, record)
        if session is None:
            session = MemberSession(deadline_ms=at.now_ms + timeout_ms, timeout_ms=timeout_ms)
            group.sessions[member_id] = session
        session.number = group.number
        self.touch(group, member_id, at)
        self.plan(group, member_id)

    def _timeout_ms(self, group: ConsumerGroup, record: ConsumerMemberRecord) -> int:
        if record.classic is not None:
            return record.classic.session_timeout_ms
        return self._times.session_timeout_ms(group.group_id)

    def touch(self, group: ConsumerGroup, member_id: str, at: Moment) -> None:
        """Begin the member's session anew."""
        session = group.sessions[member_id]
        timeout_ms = self._timeout_ms(group, group.members[member_id])
        session.deadline_ms = at.now_ms + timeout_ms
        if timeout_ms < session.timeout_ms:
            # Only what ends earlier than before has to be planned.
            self.plan(group, member_id)
        session.timeout_ms = timeout_ms

    def plan(self, group: ConsumerGroup, member_id: str) -> None:
        """Have the member's time checked when the first of it is over."""
        key = DeadlineKey(group.group_id, member_id)
        self._deadlines.plan(key, group.sessions[member_id].first_ms)

    def take_up(self, group: ConsumerGroup, member_id: str, at: Moment) -> None:
        """Begin the session of a member that was restored, or comes from a classic group."""
        timeout_ms = self._timeout_ms(group, group.members[member_id])
        session = MemberSession(deadline_ms=at.now_ms + timeout_ms, timeout_ms=timeout_ms)
        group.sessions[member_id] = session
        session.number = group.number
        self._watch_revocation(group, member_id, at)
        self.plan(group, member_id)

    # --- the way to the target ---

    def reconcile(
        self, group: ConsumerGroup, member_id: str, owned: Assignment | None, at: Moment
    ) -> None:
        """Take the member one step further to its target."""
        step = next_assignment(
            group.current(member_id),
            group.target_epoch,
            group.target(member_id),
            owned,
            lambda topic_id, partition: group.is_free_for(member_id, topic_id, partition),
        )
        self.put_current(group, member_id, step, at)

    def put_current(
        self, group: ConsumerGroup, member_id: str, step: CurrentAssignmentRecord, at: Moment
    ) -> None:
        if step == group.content.current.get(member_id):
            return
        self.write(group, CurrentAssignmentKey(group.group_id, member_id), step)
        group.sessions[member_id].number = group.number
        self._watch_revocation(group, member_id, at)
        self.plan(group, member_id)

    def _watch_revocation(self, group: ConsumerGroup, member_id: str, at: Moment) -> None:
        """Members of the classic protocol have other times: to join and to sync."""
        member, session = group.members[member_id], group.sessions[member_id]
        has_to = group.current(member_id).state is MemberState.UNREVOKED_PARTITIONS
        if has_to and member.classic is None:
            session.revoke_by_ms = at.now_ms + member.rebalance_timeout_ms
        else:
            session.revoke_by_ms = None

    # --- the end of members ---

    def remove(self, group: ConsumerGroup, member_ids: Collection[str]) -> None:
        """Remove members; the group has another epoch afterwards."""
        is_alone = len(member_ids) == 1
        if not is_alone:
            # They may be too many for one batch, and a failover must not find the old epoch.
            self.raise_epoch(group, with_last=False)
        for member_id in member_ids:
            member = group.members[member_id]
            self._bury(group, member_id)
            self._drop_pattern(group, member)
        if is_alone:
            self.raise_epoch(group)

    def _bury(self, group: ConsumerGroup, member_id: str) -> None:
        group_id, content = group.group_id, group.content
        keys: list[ConsumerRecordKey] = []
        if member_id in content.current:
            keys.append(CurrentAssignmentKey(group_id, member_id))
        if member_id in content.targets:
            keys.append(TargetMemberKey(group_id, member_id))
        keys.append(ConsumerMemberKey(group_id, member_id))
        for number, key in enumerate(keys):
            self.write(group, key, None, with_last=number > 0)
        del group.sessions[member_id]
        self._deadlines.forget(DeadlineKey(group_id, member_id))

    def _drop_pattern(self, group: ConsumerGroup, before: ConsumerMemberRecord) -> None:
        """Forget the pattern that a member had, unless another has it."""
        pattern = before.pattern
        if pattern is None or pattern in group.with_pattern:
            return
        group.asked.pop(pattern, None)
        if pattern in group.content.patterns:
            self.write(group, PatternKey(group.group_id, pattern), None)

    def replace(self, group: ConsumerGroup, old_id: str, new_id: str, at: Moment) -> None:
        """Give the place of a static member, with all that it has, to another member id."""
        group_id, content = group.group_id, group.content
        member, current = group.members[old_id], group.current(old_id)
        target = content.targets.get(old_id, TargetMemberRecord(assignment={}))
        begun = CurrentAssignmentRecord(
            member_epoch=0,
            previous_epoch=0,
            state=MemberState.STABLE,
            assigned=current.assigned,
            pending_revocation={},
        )
        self._bury(group, old_id)
        self.write(group, ConsumerMemberKey(group_id, new_id), member)
        self.write(group, TargetMemberKey(group_id, new_id), target)
        self.take_up(group, new_id, at)
        self.write(group, CurrentAssignmentKey(group_id, new_id), begun)
        group.sessions[new_id].number = group.number
