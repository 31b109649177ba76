"""The group coordinator of one partition of the offsets topic, from the election of its leader to
the next. `step(event)` returns effects, touches nothing else, and promises nothing that the next
coordinator would not find in the log.

    who is in a group      joins.py, rebalances.py   KIP-62, KIP-345, KIP-394
    what it has committed  commits.py                KIP-98, KIP-211, KIP-496
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
from storage_engine.core.groups.commits import Commits
from storage_engine.core.groups.consumer.events import (
    AssignmentComputed,
    ConsumerHeartbeat,
    GroupSettingsChanged,
    PatternResolved,
    PatternsStale,
    TopicsChanged,
)
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
    Joined,
    Leave,
    Left,
    MemberHeartbeat,
    ReadOffsets,
    RequestingMember,
    Sync,
    TopicsDeleted,
    TransactionEnded,
    WakeAt,
)
from storage_engine.core.groups.group import Group, GroupState, Member
from storage_engine.core.groups.joins import Joins
from storage_engine.core.groups.rebalances import Deadlines, GroupSettings, Rebalances
from storage_engine.core.groups.records import GroupContent


def refusal(request: int, error: ErrorCode) -> Answer:
    return Answer(request=request, error=error)


class GroupCoordinator:
    """All groups of one partition of the offsets topic."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self._settings = settings = settings or GroupSettings()
        self._log: GroupLog = StateLog(refusal)
        self.groups: dict[str, Group] = {}
        """The groups by id; for reading only."""
        self._deadlines = Deadlines()
        self._rebalances = Rebalances(self._log, settings, self._deadlines)
        self._joins = Joins(self._log, settings, self._rebalances)
        self._commits = Commits(self._log, self.groups, settings)
        self._expiry: Iterator[None] | None = None
        """The round of expiry that is under way."""
        self._forgetting: list[Iterator[None]] = []
        """Topics whose offsets are still to be removed; it comes before the expiry."""
        self._wake_ms: int | None = None
        """The monotonic time at which the driver was asked to send a CheckDeadlines."""

    def restore(self, content: GroupContent, at: Moment) -> Generator[None, None, list[Effect]]:
        """Begin with the content of the log; called once, before any event, and in pieces."""
        looked_at = 0
        for group_id, record in list(content.groups.items()):
            # Many groups have few members, and one may have many.
            group = self.groups[group_id] = Group.of_record(group_id, record)
            looked_at += 1
            for each in record.members:
                if looked_at >= PIECE:
                    yield
                    looked_at = 0
                looked_at += 1
                self._rebalances.plan_end(group, group.restore(each, at.now_ms), at)
            if looked_at >= PIECE:
                yield
                looked_at = 0
        yield
        yield from self._commits.restore(content)
        return self._effects()

    def step(self, event: Event) -> list[Effect]:
        match event:
            case Join():
                self._join(event)
            case Sync():
                self._sync(event)
            case MemberHeartbeat():
                self._heartbeat(event)
            case Leave():
                self._leave(event)
            case CommitOffsets():
                self._commits.commit(event)
            case ReadOffsets():
                self._commits.read(event)
            case CheckDeadlines():
                self._tick(event.at)
            case Replicated():
                self._log.note_replicated(event.number)
            case (
                ConsumerHeartbeat()
                | TopicsChanged()
                | PatternsStale()
                | PatternResolved()
                | AssignmentComputed()
                | GroupSettingsChanged()
            ):
                raise NotImplementedError
            case _:
                self._step_commits(event)
        return self._effects()

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

    def _join(self, event: Join) -> None:
        code = self._joins.check(event)
        group = self.groups.get(event.group_id)
        if code is ErrorCode.NONE and group is None and event.member_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code is not ErrorCode.NONE:
            self._log.emit(Joined(request=event.request, error=code, member_id=event.member_id))
            return
        if group is None:
            group = Group(group_id=event.group_id)
        self._joins.join(group, event)
        if group.members or group.promised:
            self.groups[event.group_id] = group

    def _sync(self, event: Sync) -> None:
        group, code = self._group_of(event.group_id, event.caller)
        if group is None:
            self._log.refuse(event.request, code)
            return
        member = group.members[event.caller.member_id]
        if group.state is GroupState.PREPARING:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        elif not _fits(event.protocol_type, group.protocol_type) or not _fits(
            event.protocol, group.protocol
        ):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif group.state is GroupState.COMPLETING and group.leader == member.member_id:
            code = self._take_assignments(group, event)
        if code is not ErrorCode.NONE:
            self._log.refuse(event.request, code)
            return
        self._rebalances.note_synced(group, member)
        member.touch(event.at.now_ms)
        if group.state is GroupState.STABLE:
            answer = self._rebalances.synced(group, member, event.request)
            self._rebalances.answer(group, member, answer)
        else:
            given_up = group.syncing.get(member.member_id)
            if given_up is not None:
                # The client has given up waiting for that request.
                self._log.refuse(given_up, ErrorCode.REBALANCE_IN_PROGRESS)
            group.syncing[member.member_id] = event.request
            if group.leader == member.member_id:
                self._rebalances.assign(group, event.at)

    def _take_assignments(self, group: Group, event: Sync) -> ErrorCode:
        if group.bytes_with(event.assignments) > self._settings.record_max_bytes:
            return ErrorCode.INVALID_REQUEST
        for member in group.members.values():
            member.assignment = event.assignments.get(member.member_id, b"")
        return ErrorCode.NONE

    def _heartbeat(self, event: MemberHeartbeat) -> None:
        group, code = self._group_of(event.group_id, event.caller)
        if group is not None:
            group.members[event.caller.member_id].touch(event.at.now_ms)
            if group.state is GroupState.PREPARING:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        self._log.refuse(event.request, code)

    def _leave(self, event: Leave) -> None:
        group = self.groups.get(event.group_id)
        if group is None:
            unknown = (ErrorCode.UNKNOWN_MEMBER_ID,) * len(event.members)
            self._log.emit(Left(request=event.request, codes=unknown))
            return
        codes = []
        changed = False
        for caller in event.members:
            if group.promised.pop(caller.member_id, None) is not None:
                self._rebalances.forget(group, caller.member_id)
                changed = changed or group.state is GroupState.PREPARING
                codes.append(ErrorCode.NONE)
                continue
            found = self._member_that_leaves(group, caller)
            if isinstance(found, Member):
                self._rebalances.remove(group, found)
                changed = True
                found = ErrorCode.NONE
            codes.append(found)
        if changed:
            self._rebalances.prepare_unless_preparing(group, event.at)
        self._log.answer(Left(request=event.request, codes=tuple(codes)), after=group.number)

    def _member_that_leaves(self, group: Group, caller: RequestingMember) -> Member | ErrorCode:
        if not caller.member_id and caller.instance_id is not None:
            # An operator removes a static member by its instance id, whatever its member id is.
            member_id = group.instances.get(caller.instance_id)
            return ErrorCode.UNKNOWN_MEMBER_ID if member_id is None else group.members[member_id]
        code = group.check(caller)
        return group.members[caller.member_id] if code is ErrorCode.NONE else code

    def _group_of(self, group_id: str, caller: RequestingMember) -> tuple[Group | None, ErrorCode]:
        """Return the group whose present generation the caller is in, or why there is none."""
        if not group_id:
            return None, ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(group_id)
        if group is None:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        code = group.check_generation(caller)
        return (group, code) if code is ErrorCode.NONE else (None, code)

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
            if group is not None:
                self._rebalances.check_due(group, member_ids, at)

    def _effects(self) -> list[Effect]:
        first_ms = self._deadlines.first_ms
        if first_ms is not None and (self._wake_ms is None or first_ms < self._wake_ms):
            self._wake_ms = first_ms
            self._log.emit(WakeAt(now_ms=first_ms))
        return self._log.take_effects()


def _fits(given: str | None, known: str | None) -> bool:
    """Return True when a client names the same value as the group has, or none, as old versions
    do."""
    return given is None or given == known
