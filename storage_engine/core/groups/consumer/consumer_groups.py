"""All consumer groups of a coordinator: their events, their members' deadlines, and the work on
them that is done in pieces."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

from storage_engine.core.coordinator_log import PIECE, Moment, UnreadableRecord, pieces
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.busy_groups import BusyGroups, GroupRequest
from storage_engine.core.groups.classic.rebalances import Rebalances
from storage_engine.core.groups.consumer.classic_members import ClassicMembers
from storage_engine.core.groups.consumer.events import (
    AssignmentComputed,
    ConsumerEvent,
    ConsumerHeartbeat,
    GroupSettingsChanged,
    PatternResolved,
    PatternsStale,
    TopicShapesChanged,
)
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer.heartbeats import ConsumerHeartbeats
from storage_engine.core.groups.consumer.membership import GroupMembership, GroupTimes
from storage_engine.core.groups.consumer.patterns import Patterns
from storage_engine.core.groups.consumer.records import ConsumerRecord, ConsumerRecordKey
from storage_engine.core.groups.consumer.targets import Targets
from storage_engine.core.groups.consumer.topics import Topics
from storage_engine.core.groups.deadlines import Deadlines
from storage_engine.core.groups.events import (
    GroupLog,
    Join,
    Joined,
    Leave,
    MemberHeartbeat,
    Sync,
)
from storage_engine.core.groups.group import Group
from storage_engine.core.groups.migration import Migration
from storage_engine.core.groups.records import GroupContent
from storage_engine.core.groups.settings import GroupSettings


class ConsumerGroups:
    def __init__(
        self,
        log: GroupLog,
        settings: GroupSettings,
        groups: dict[str, Group],
        deadlines: Deadlines,
        rebalances: Rebalances,
        step: Callable[[GroupRequest], None],
    ) -> None:
        """`step` steps an event about a group at once."""
        self._log = log
        self._groups = groups
        self._topics = Topics()
        self._times = GroupTimes(settings.consumer)
        self._work: deque[Iterator[None]] = deque()
        self.busy = BusyGroups(log, self._work.append, step)
        membership = self._membership = GroupMembership(log, self._times, deadlines)
        self._targets = Targets(
            log, settings.consumer, groups, membership, deadlines, self._work.append
        )
        self._patterns = Patterns(log, membership)
        self._migration = Migration(
            log, settings, groups, self._topics, membership, rebalances, self.busy
        )
        self._heartbeats = ConsumerHeartbeats(
            log,
            settings,
            groups,
            self._topics,
            self._times,
            membership,
            self._targets,
            self._patterns,
            self._migration,
        )
        self._classic = ClassicMembers(
            log,
            settings,
            self._topics,
            membership,
            self._targets,
            self._migration,
            self.busy,
            self._heartbeats.remove,
        )

    @property
    def rebalances(self) -> int:
        return self._membership.rebalances

    def restore(self, content: GroupContent, at: Moment) -> Iterator[None]:
        """Take up the groups in pieces, each with its members."""
        looked_at = 0
        for group_id, records in list(content.consumer_groups.items()):
            if group_id in content.groups and records.group is None:
                # It is a classic group; there are leftovers that could not be read.
                continue
            group = ConsumerGroup(group_id=group_id, topics=self._topics)
            self._groups[group_id] = group
            for entry in records.entries(group_id):
                _restore(group, *entry)
                looked_at += 1
                if looked_at >= PIECE:
                    yield
                    looked_at = 0
            for number, member_id in enumerate(group.members):
                self._membership.take_up(group, member_id, at)
                if number % PIECE == PIECE - 1:
                    yield
        yield

    # --- events ---

    def step(self, event: ConsumerEvent) -> None:
        match event:
            case ConsumerHeartbeat():
                self._heartbeats.heartbeat(event)
            case TopicShapesChanged():
                self._change_topics(event)
            case PatternsStale():
                self._topics.version += 1
            case PatternResolved():
                group = self._groups.get(event.group_id)
                if isinstance(group, ConsumerGroup):
                    self._patterns.take(group, event)
                    self._targets.advance(group)
            case AssignmentComputed():
                group = self._groups.get(event.group_id)
                if isinstance(group, ConsumerGroup):
                    self._targets.take(group, event)
            case GroupSettingsChanged():
                self._times.change(event)
            case _:
                assert_never(event)

    def _change_topics(self, event: TopicShapesChanged) -> None:
        touched = self._topics.change(event.topics, event.changed)
        self._work.append(self._advance(touched))

    def _advance(self, group_ids: Iterable[str]) -> Iterator[None]:
        """Give the groups whose topics have changed another epoch."""
        for piece in pieces(group_ids):
            for group_id in piece:
                group = self._groups.get(group_id)
                if isinstance(group, ConsumerGroup):
                    group.note_topics_changed()
                    self._targets.advance(group)
            yield

    def step_classic(self, event: Join | Sync | MemberHeartbeat | Leave) -> bool:
        """Step a request of the classic protocol to a consumer group. Return False when the group
        is a classic one, or has become one."""
        group = self._groups.get(event.group_id)
        if not isinstance(group, ConsumerGroup):
            return False
        match event:
            case Join():
                return self._join(group, event)
            case Sync():
                self._classic.sync(group, event)
            case MemberHeartbeat():
                self._classic.heartbeat(group, event)
            case Leave():
                self._classic.leave(group, event)
            case _:
                assert_never(event)
        return True

    def _join(self, group: ConsumerGroup, event: Join) -> bool:
        if not group.is_empty:
            if self._classic.join(group, event):
                return True
            # It stays a consumer group where it is too large to be converted.
            is_same = self._groups.get(event.group_id) is group
            return is_same and self._classic.join(group, event)
        if event.member_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            self._log.emit(Joined(request=event.request, error=code, member_id=event.member_id))
            return True
        self._migration.empty_to_classic(group)
        return False

    def check_due(self, group: ConsumerGroup, member_ids: Iterable[str], at: Moment) -> None:
        self._heartbeats.check_due(group, member_ids, at)

    # --- work in pieces ---

    @property
    def has_work(self) -> bool:
        return bool(self._work)

    def work(self) -> None:
        """Do a piece of the work."""
        if not self._work:
            return
        first = self._work[0]
        for _ in first:
            return
        self._work.remove(first)


def _restore(
    group: ConsumerGroup, key: ConsumerRecordKey, record: ConsumerRecord | UnreadableRecord
) -> None:
    if isinstance(record, UnreadableRecord):
        group.content.put(key, record)
    else:
        group.apply(key, record)
