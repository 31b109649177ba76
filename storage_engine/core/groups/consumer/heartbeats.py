"""ConsumerGroupHeartbeat: a member joins, goes on or leaves. Its epoch says which answer it has
seen: it may be the present one, or the one before when an answer was lost. Any other is fenced, so
that the member gives up all partitions and joins anew.

    epoch     the member
    0         joins; with an instance id it takes the place of a member that has left for a moment
    above 0   goes on
    -1        leaves
    -2        leaves for a moment, and keeps its partitions until its session ends (static members)

Source: KIP-848."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from storage_engine.core.coordinator_log import Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer.events import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_FOR_A_MOMENT_EPOCH,
    NO_TIMEOUT,
    ConsumerHeartbeat,
    HeartbeatAnswer,
)
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer.heartbeat_checks import (
    Refusal,
    check_bounds,
    check_epoch,
    check_member,
    check_place,
    check_request,
    is_lost_answer,
    no_consumer_group,
    refused,
    replaced_by,
    updated,
)
from storage_engine.core.groups.consumer.membership import GroupMembership, GroupTimes
from storage_engine.core.groups.consumer.patterns import Patterns
from storage_engine.core.groups.consumer.targets import Targets
from storage_engine.core.groups.consumer.topics import Topics
from storage_engine.core.groups.events import GroupLog
from storage_engine.core.groups.group import Group
from storage_engine.core.groups.migration import Migration
from storage_engine.core.groups.settings import GroupSettings


class ConsumerHeartbeats:
    def __init__(
        self,
        log: GroupLog,
        settings: GroupSettings,
        groups: dict[str, Group],
        topics: Topics,
        times: GroupTimes,
        membership: GroupMembership,
        targets: Targets,
        patterns: Patterns,
        migration: Migration,
    ) -> None:
        self._log = log
        self._settings = settings.consumer
        self._groups = groups
        self._topics = topics
        self._times = times
        self._membership = membership
        self._targets = targets
        self._patterns = patterns
        self._migration = migration

    def heartbeat(self, event: ConsumerHeartbeat) -> None:
        refusal = check_request(event, self._settings.assignors)
        if refusal is None:
            if not event.writes:
                refusal = self._stay(event)
            elif event.member_epoch == JOINING_EPOCH:
                refusal = self._join(event)
            elif event.member_epoch > JOINING_EPOCH:
                refusal = self._go_on(event)
            else:
                refusal = self._leave(event)
        if refusal is not None:
            self._log.emit(refused(event, refusal))

    # --- members that are there ---

    def _go_on(self, event: ConsumerHeartbeat) -> Refusal | None:
        group = self._groups.get(event.group_id)
        if not isinstance(group, ConsumerGroup):
            return no_consumer_group(event.group_id)
        member_id = event.member_id
        current = group.current(member_id)
        refusal = (
            check_member(group, event)
            or check_epoch(member_id, current, event)
            or check_bounds(group, member_id, event)
        )
        if refusal is None:
            is_lost = event.member_epoch != current.member_epoch
            self._beat(group, member_id, event, is_lost=is_lost)
        return refusal

    def _beat(
        self, group: ConsumerGroup, member_id: str, event: ConsumerHeartbeat, *, is_lost: bool
    ) -> None:
        """Take up what a member says, take it a step further to its target, and answer. With
        `is_lost` it has not seen the last answer: it gets that one again first, since two lost
        answers in a row would fence it."""
        membership = self._membership
        self._take_up(group, member_id, event)
        self._targets.advance(group)
        current = before = group.current(member_id)
        if not is_lost and not group.is_reconciled(before):
            membership.reconcile(group, member_id, event.owned, event.at)
            current = group.current(member_id)
        membership.touch(group, member_id, event.at)
        is_full = event.member_epoch == JOINING_EPOCH or (
            event.rebalance_timeout_ms != NO_TIMEOUT
            and (event.topics is not None or event.pattern is not None)
            and event.owned is not None
        )
        is_other = current is not before and before.assigned != current.assigned
        answer = HeartbeatAnswer(
            request=event.request,
            member_id=member_id,
            member_epoch=current.member_epoch,
            interval_ms=self._times.heartbeat_interval_ms(group.group_id),
            assignment=current.assigned if is_full or is_other or is_lost else None,
        )
        self._log.answer(answer, after=group.sessions[member_id].number)

    def _take_up(self, group: ConsumerGroup, member_id: str, event: ConsumerHeartbeat) -> None:
        before = group.members.get(member_id)
        record = updated(before, event)
        if record is not before and record != before:
            self._membership.put(group, member_id, record, event.at)
            if before is None or (before.topics, before.pattern) != (record.topics, record.pattern):
                self._membership.raise_epoch(group)
        if record.pattern is not None:
            now_ms = event.at.now_ms
            self._patterns.ask_where_due(group, record.pattern, event.client, now_ms)

    def _stay(self, event: ConsumerHeartbeat) -> Refusal | None:
        """Keep the session of a member while nothing can be appended."""
        group, member_id = self._groups.get(event.group_id), event.member_id
        if not isinstance(group, ConsumerGroup):
            return no_consumer_group(event.group_id)
        refusal = check_member(group, event)
        if refusal is not None:
            return refusal
        current, known = group.current(member_id), group.members[member_id]
        is_present = event.member_epoch == current.member_epoch
        if is_present:
            self._membership.touch(group, member_id, event.at)
        if not (is_present and group.is_reconciled(current) and updated(known, event) == known):
            return Refusal(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "too few replicas are in sync: ask again"
            )
        answer = HeartbeatAnswer(
            request=event.request,
            member_id=member_id,
            member_epoch=current.member_epoch,
            interval_ms=self._times.heartbeat_interval_ms(group.group_id),
        )
        self._log.answer(answer, after=group.sessions[member_id].number)
        return None

    # --- members that come ---

    def _join(self, event: ConsumerHeartbeat) -> Refusal | None:
        group, member_id = self._groups.get(event.group_id), event.member_id
        member_id = member_id or event.fresh_member_id
        if self._topics.shapes is None:
            return Refusal(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator does not know topics yet"
            )
        has_place = isinstance(group, ConsumerGroup) and (
            member_id in group.members or replaced_by(group, member_id, event) is not None
        )
        most = self._settings.max_size
        if group is not None and group.size >= most and not has_place:
            return Refusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"group {event.group_id} has {most} members, the most that it may have",
            )
        if isinstance(group, ConsumerGroup):
            refusal = check_place(group, member_id, event) or check_bounds(group, member_id, event)
            if refusal is not None:
                return refusal
            joined = group
        else:
            found = self._migration.upgrade(group, member_id, event)
            if not isinstance(found, ConsumerGroup):
                return found
            joined = found
        replaced = replaced_by(joined, member_id, event)
        if replaced is not None:
            self._membership.replace(joined, replaced, member_id, event.at)
        is_lost = member_id in joined.members and is_lost_answer(joined.current(member_id), event)
        self._beat(joined, member_id, event, is_lost=is_lost)
        return None

    # --- members that leave ---

    def _leave(self, event: ConsumerHeartbeat) -> Refusal | None:
        group = self._groups.get(event.group_id)
        if not isinstance(group, ConsumerGroup):
            return no_consumer_group(event.group_id)
        refusal = check_member(group, event)
        if refusal is not None:
            return refusal
        answer = HeartbeatAnswer(
            request=event.request, member_id=event.member_id, member_epoch=event.member_epoch
        )
        if event.member_epoch == LEAVING_EPOCH:
            self.remove(
                group,
                [event.member_id],
                event.at,
                then=lambda: self._log.answer(answer, after=self._log.appended),
            )
            return None
        current = group.current(event.member_id)
        away = replace(current, member_epoch=LEAVING_FOR_A_MOMENT_EPOCH, pending_revocation={})
        self._membership.put_current(group, event.member_id, away, event.at)
        self._log.answer(answer, after=group.number)
        return None

    def remove(
        self,
        group: ConsumerGroup,
        member_ids: list[str],
        at: Moment,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Remove members, by their own will or not, and call `then` afterwards. The group becomes a
        classic one when only such members are left."""

        def removed() -> None:
            if self._groups.get(group.group_id) is group:
                self._targets.advance(group)
            then()

        if self._migration.downgrades_without(group, member_ids):
            self._migration.downgrade(group, member_ids, at, removed)
            return
        self._membership.remove(group, member_ids)
        removed()

    def check_due(self, group: ConsumerGroup, member_ids: Iterable[str], at: Moment) -> None:
        """Remove those of these members whose time is over."""
        ended = []
        for member_id in member_ids:
            session = group.sessions.get(member_id)
            if session is None:
                continue
            if session.first_ms <= at.now_ms:
                if not self._log.in_flight(session.number):
                    ended.append(member_id)
                    continue
                # Its answer waits for the replicas: it does not know yet what it has to do.
                session.begin_anew(at.now_ms)
            self._membership.plan(group, member_id)
        if ended:
            self.remove(group, ended, at)
        else:
            self._targets.advance(group)
