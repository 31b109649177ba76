"""The group coordinator of one partition of the offsets topic, from the election of its leader to
the next. `step(event)` returns effects, touches nothing else, and promises nothing that the next
coordinator would not find in the log.

    members of classic groups     classic/    KIP-62, KIP-345, KIP-394
    members of consumer groups    consumer/   KIP-848; from one kind to the other: migration.py
    what a group has committed    commits.py  KIP-98, KIP-211, KIP-496
    what waits for which record   core/coordinator_log.py

The driver appends the records in order, reports when they are replicated, sends CheckDeadlines when
it was asked to, and drops the coordinator when an append fails or another broker leads the
partition.
"""

from collections.abc import Generator, Iterator
from typing import assert_never

from storage_engine.core.coordinator_log import (
    PIECE,
    Answer,
    Moment,
    Replicated,
    StateLog,
    TickAgain,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.busy_groups import GroupRequest
from storage_engine.core.groups.classic.group import ClassicGroup
from storage_engine.core.groups.classic.rebalances import Rebalances
from storage_engine.core.groups.classic.requests import ClassicRequests
from storage_engine.core.groups.commits import Commits
from storage_engine.core.groups.consumer.consumer_groups import ConsumerGroups
from storage_engine.core.groups.consumer.events import (
    AssignmentComputed,
    ConsumerHeartbeat,
    GroupSettingsChanged,
    PatternResolved,
    PatternsStale,
    TopicShapesChanged,
)
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.deadlines import DeadlineKey, Deadlines
from storage_engine.core.groups.events import (
    CheckDeadlines,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    Effect,
    Event,
    ExpireOffsets,
    GroupLog,
    Join,
    Leave,
    MemberHeartbeat,
    ReadOffsets,
    Sync,
    TopicsDeleted,
    TransactionEnded,
    WakeAt,
)
from storage_engine.core.groups.group import Group
from storage_engine.core.groups.records import GroupContent
from storage_engine.core.groups.settings import GroupSettings


def refusal(request: int, error: ErrorCode) -> Answer:
    return Answer(request=request, error=error)


BUSY_MS = 1_000
"""When the deadlines of a group are checked again that is being converted."""

AT_ONCE_MS = 0
"""A time that is over."""


class GroupCoordinator:
    """All groups of one partition of the offsets topic."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self._settings = settings = settings or GroupSettings()
        self._log: GroupLog = StateLog(refusal)
        self.groups: dict[str, Group] = {}
        """The groups by id; for reading only."""
        self._deadlines = Deadlines()
        self._rebalances = Rebalances(self._log, settings, self._deadlines)
        self._consumer = ConsumerGroups(
            self._log, settings, self.groups, self._deadlines, self._rebalances, self._step
        )
        self._classic = ClassicRequests(self._log, settings, self._rebalances, self.groups)
        self._commits = Commits(self._log, self.groups, settings)
        self._expiry: Iterator[None] | None = None
        """The round of expiry that is under way."""
        self._forgetting: list[Iterator[None]] = []
        """Topics whose offsets are still to be removed; it comes before the expiry."""
        self._wake_ms: int | None = None
        """The monotonic time at which the driver was asked to send a CheckDeadlines."""

    @property
    def consumer_rebalances(self) -> int:
        """Return how often consumer groups have begun to rebalance since this coordinator began."""
        return self._consumer.rebalances

    def restore(self, content: GroupContent, at: Moment) -> Generator[None, None, list[Effect]]:
        """Begin with the content of the log; called once, before any event, and in pieces."""
        looked_at = 0
        for group_id, record in list(content.groups.items()):
            # Many groups have few members, and one may have many.
            group = self.groups[group_id] = ClassicGroup.of_record(group_id, record)
            looked_at += 1
            for each in record.members:
                if looked_at >= PIECE:
                    yield
                    looked_at = 0
                looked_at += 1
                self._rebalances.plan_end(group, group.restore(each, at.now_ms), at)
            if record.members and record.leader is None:
                # It was a consumer group, and its members have not joined anew yet.
                self._rebalances.prepare(group, at)
            if looked_at >= PIECE:
                yield
                looked_at = 0
        yield
        yield from self._consumer.restore(content, at)
        yield from self._commits.restore(content)
        return self._effects()

    def step(self, event: Event) -> list[Effect]:
        busy = self._consumer.busy
        if busy.waiting and isinstance(event, GroupRequest) and event.group_id in busy:
            busy.receive(event)
        else:
            self._step(event)
        return self._effects()

    def _step(self, event: Event) -> None:
        match event:
            case (
                ConsumerHeartbeat()
                | TopicShapesChanged()
                | PatternsStale()
                | PatternResolved()
                | AssignmentComputed()
                | GroupSettingsChanged()
            ):
                self._consumer.step(event)
            case Join() | Sync() | MemberHeartbeat() | Leave():
                self._step_classic(event)
            case CommitOffsets():
                self._commits.commit(event)
            case ReadOffsets():
                self._commits.read(event)
            case CheckDeadlines():
                self._tick(event.at)
            case Replicated():
                self._log.note_replicated(event.number)
            case _:
                self._step_commits(event)

    def _step_classic(self, event: Join | Sync | MemberHeartbeat | Leave) -> None:
        is_possible = not isinstance(event, Join) or self._classic.check(event) is ErrorCode.NONE
        if is_possible and self._consumer.step_classic(event):
            return
        match event:
            case Join():
                self._classic.join(event)
            case Sync():
                self._classic.sync(event)
            case MemberHeartbeat():
                self._classic.heartbeat(event)
            case Leave():
                self._classic.leave(event)
            case _:
                assert_never(event)

    def _step_commits(
        self,
        event: DeleteOffsets | DeleteGroup | TransactionEnded | ExpireOffsets | TopicsDeleted,
    ) -> None:
        match event:
            case DeleteOffsets():
                self._commits.delete_offsets(event)
            case DeleteGroup():
                self._commits.delete_group(event)
            case TransactionEnded():
                self._commits.end_transaction(event.producer_id, commits=event.commits)
            case ExpireOffsets():
                self._expire(event.at)
            case TopicsDeleted():
                self._forgetting.append(self._commits.forget_topics(event.topics))
                self._forget()
            case _:
                assert_never(event)

    def _expire(self, at: Moment) -> None:
        """Go on with the round that is under way, or begin one."""
        if self._forgetting:
            self._forget()
            return
        if self._expiry is None:
            self._expiry = self._commits.expire(at)
        for _ in self._expiry:
            self._log.emit(TickAgain())
            return
        self._expiry = None

    def _forget(self) -> None:
        """Remove some offsets of topics that were deleted."""
        for _ in self._forgetting[0]:
            self._log.emit(TickAgain())
            return
        del self._forgetting[0]
        if self._forgetting or self._expiry is not None:
            self._log.emit(TickAgain())

    def _tick(self, at: Moment) -> None:
        self._wake_ms = None
        due: dict[str, list[str]] = {}
        for key in self._deadlines.take_due(at.now_ms):
            due.setdefault(key.group_id, []).append(key.member_id)
        for group_id, member_ids in due.items():
            group = self.groups.get(group_id)
            if group_id in self._consumer.busy:
                for member_id in member_ids:
                    self._deadlines.plan(DeadlineKey(group_id, member_id), at.now_ms + BUSY_MS)
            elif isinstance(group, ClassicGroup):
                self._rebalances.check_due(group, member_ids, at)
            elif isinstance(group, ConsumerGroup):
                self._consumer.check_due(group, member_ids, at)
        self._consumer.work()

    def _effects(self) -> list[Effect]:
        first_ms = AT_ONCE_MS if self._consumer.has_work else self._deadlines.first_ms
        if first_ms is not None and (self._wake_ms is None or first_ms < self._wake_ms):
            self._wake_ms = first_ms
            self._log.emit(WakeAt(now_ms=first_ms))
        return self._log.take_effects()
