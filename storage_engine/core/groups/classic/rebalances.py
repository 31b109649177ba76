"""Takes a group from one generation to the next. A generation begins when all members have joined,
or when the rebalance timeout of the others is over; and no member gets its assignment before the
group's record is replicated.

Source: Kafka's classic group protocol, KIP-62 (rebalance timeout), KIP-134 (the first members are
gathered), KIP-345, KIP-394, KIP-447.
"""

from collections.abc import Collection, Iterable, Iterator

from storage_engine.core.coordinator_log import Answer, AnswerEach, Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState, Member
from storage_engine.core.groups.deadlines import DUE_MAX, DeadlineKey, Deadlines
from storage_engine.core.groups.events import GroupLog, Joined, JoinedMember, Synced
from storage_engine.core.groups.records import GroupKey
from storage_engine.core.groups.settings import GroupSettings

NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000
"""How long a member that has never been in a generation may wait for one. Kafka has the same
constant, and no setting."""

AWAY_MS = 1_000
"""How long at least the group waits for static members that are away before it checks again: their
own rebalance timeout may be 0."""


class Rebalances:
    def __init__(self, log: GroupLog, settings: GroupSettings, deadlines: Deadlines) -> None:
        self._log = log
        self._settings = settings
        self._deadlines = deadlines

    def prepare(self, group: ClassicGroup, at: Moment) -> None:
        """Begin a rebalance: all members have to join anew."""
        assert group.state is not GroupState.PREPARING, "that is under way"
        syncing, group.syncing = group.syncing, {}
        for member_id in syncing:
            group.members[member_id].touch(at.now_ms)
        self._refuse_each(syncing.values(), ErrorCode.REBALANCE_IN_PROGRESS)
        group.unsynced.clear()
        group.sync_deadline_ms = None
        delay_ms = self._settings.initial_delay_ms
        group.is_gathering = group.state is GroupState.EMPTY and delay_ms > 0
        group.newcomer = False
        group.state = GroupState.PREPARING
        if group.is_gathering:
            group.gathering_left_ms = max(0, group.rebalance_timeout_ms - delay_ms)
            self._wait_for_members(group, at.now_ms + delay_ms)
        else:
            self._wait_for_members(group, at.now_ms + group.rebalance_timeout_ms)
        self.complete_if_ready(group, at)

    def prepare_unless_preparing(self, group: ClassicGroup, at: Moment) -> None:
        """Begin a rebalance after a member has come or gone, unless one is under way."""
        if group.state is GroupState.PREPARING:
            self.complete_if_ready(group, at)
        else:
            self.prepare(group, at)

    def _wait_for_members(self, group: ClassicGroup, until_ms: int) -> None:
        group.join_deadline_ms = until_ms
        self._deadlines.plan(DeadlineKey(group.group_id), until_ms)

    def _refuse_each(self, requests: Collection[int], code: ErrorCode) -> None:
        if requests:
            refusals = (Answer(request=request, error=code) for request in requests)
            self._log.emit(AnswerEach(refusals))

    def complete_if_ready(self, group: ClassicGroup, at: Moment) -> None:
        if group.state is GroupState.PREPARING and not group.is_gathering and group.all_joined:
            self._complete(group, at)

    def _complete(self, group: ClassicGroup, at: Moment) -> None:
        group.is_gathering = False
        self.remove_all(group, self._away(group))
        self._refuse_newcomers_that_do_not_fit(group)
        if group.members and not group.joining:
            # Static members that are away keep their assignment until their sessions end.
            self._wait_for_members(group, at.now_ms + max(AWAY_MS, group.rebalance_timeout_ms))
            return
        group.join_deadline_ms = None
        group.generation += 1
        if not group.members:
            group.state = GroupState.EMPTY
            group.protocol = group.leader = None
            self.record(group, at)
            return
        if group.leader not in group.joining:
            group.leader = next(each for each in group.members if each in group.joining)
        group.protocol = group.choose_protocol()
        group.state = GroupState.COMPLETING
        group.unsynced = set(group.members)
        self._wait_for_syncs(group, at)
        joined = group.take_joined()
        for member_id in joined:
            member = group.members[member_id]
            member.assignment = b""
            member.touch(at.now_ms)
        self._log.emit(AnswerEach(_each_joined(group, joined)))

    def _wait_for_syncs(self, group: ClassicGroup, at: Moment) -> None:
        until_ms = at.now_ms + group.rebalance_timeout_ms
        group.sync_deadline_ms = until_ms
        self._deadlines.plan(DeadlineKey(group.group_id), until_ms)

    def _refuse_newcomers_that_do_not_fit(self, group: ClassicGroup) -> None:
        """Refuse the last newcomers, as many as make the record too large. When they came it was
        open which members would be in this generation; those of the last generation stay, even if
        the record is too large with them."""
        if not group.newcomers:
            return
        newcomers = [group.members[member_id] for member_id in group.newcomers]
        last = newcomers[-1]
        size = group.bytes_after(last, group.sizes.members - last.most_bytes)
        refused = []
        while newcomers and size > self._settings.record_max_bytes:
            last = newcomers.pop()
            size -= last.most_bytes
            refused.append(last)
        self.remove_all(group, refused, ErrorCode.INVALID_REQUEST)

    def joined(self, group: ClassicGroup, member: Member, request: int) -> Joined:
        """Return the answer to a member's JoinGroup in the present generation."""
        (answer,) = _each_joined(group, {member.member_id: request})
        return answer

    def synced(self, group: ClassicGroup, member: Member, request: int) -> Synced:
        (answer,) = _each_synced(group, [(request, member.assignment)])
        return answer

    def answer(self, group: ClassicGroup, member: Member, answer: Answer) -> None:
        """Answer a member once the group's last record is replicated."""
        member.answer_number = group.number
        self._log.answer(answer, after=group.number)

    def assign(self, group: ClassicGroup, at: Moment) -> None:
        """Take the leader's assignments as made: record them and answer the members that wait."""
        group.state = GroupState.STABLE
        self.record(group, at)
        syncing, group.syncing = group.syncing, {}
        parts = []
        for member_id, request in syncing.items():
            member = group.members[member_id]
            member.touch(at.now_ms)
            member.answer_number = group.number
            parts.append((request, member.assignment))
        self._log.answer(AnswerEach(_each_synced(group, parts)), after=group.number)

    def note_synced(self, group: ClassicGroup, member: Member) -> None:
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            group.sync_deadline_ms = None

    def remove(self, group: ClassicGroup, member: Member) -> None:
        """Remove a member; its open requests are answered."""
        self.remove_all(group, [member])

    def remove_all(
        self,
        group: ClassicGroup,
        members: Iterable[Member],
        code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
    ) -> None:
        """Remove members; their open requests are answered with the code."""
        leader = group.leader
        for member in members:
            member_id = member.member_id
            joining, syncing = group.joining.get(member_id), group.syncing.get(member_id)
            if joining is not None:
                self._log.emit(Joined(request=joining, error=code, member_id=member_id))
            if syncing is not None:
                self._log.emit(Answer(request=syncing, error=code))
            group.drop(member)
            self.forget(group, member_id)
        if not group.unsynced:
            group.sync_deadline_ms = None
        group.has_left(leader=leader)

    def plan_end(self, group: ClassicGroup, member: Member, at: Moment) -> None:
        """Have the end of the member's session checked: of one that begins now, or later, as with
        the answer that it waits for, so that no other time has to be planned when it is touched."""
        until_ms = min(member.deadline_ms, at.now_ms + member.session_timeout_ms)
        if until_ms <= at.now_ms:
            until_ms = at.now_ms + member.session_timeout_ms
        self._deadlines.plan(DeadlineKey(group.group_id, member.member_id), until_ms)

    def promise(self, group: ClassicGroup, member_id: str, until_ms: int) -> None:
        """Keep a member id for the JoinGroup that comes with it (KIP-394)."""
        group.promised[member_id] = until_ms
        self._deadlines.plan(DeadlineKey(group.group_id, member_id), until_ms)

    def forget(self, group: ClassicGroup, member_id: str) -> None:
        """Check nothing more of a member or a promised id that is gone."""
        self._deadlines.forget(DeadlineKey(group.group_id, member_id))

    def check_due(self, group: ClassicGroup, member_ids: Iterable[str], at: Moment) -> None:
        """Expire these promised ids and sessions, and the time to join or sync, as far as they are
        due."""
        changed = self._end_due(group, member_ids, at)
        now_ms = at.now_ms
        if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now_ms:
            late = [group.members[member_id] for member_id in sorted(group.unsynced)[:DUE_MAX]]
            self.remove_all(group, late)
            if group.unsynced:
                # The deadline stays; the others are late in the next step.
                self._deadlines.plan(DeadlineKey(group.group_id), now_ms)
                return
            group.sync_deadline_ms = None
            changed = changed or bool(late)
        if changed:
            self.prepare_unless_preparing(group, at)
        if group.join_deadline_ms is not None and group.join_deadline_ms <= now_ms:
            self._end_waiting(group, at)
        for until_ms in (group.join_deadline_ms, group.sync_deadline_ms):
            if until_ms is not None:
                self._deadlines.plan(DeadlineKey(group.group_id), until_ms)

    def _end_due(self, group: ClassicGroup, member_ids: Iterable[str], at: Moment) -> bool:
        """Return True when a rebalance has to begin, or may be complete."""
        now_ms = at.now_ms
        changed = False
        ended = []
        for member_id in member_ids:
            until_ms = group.promised.get(member_id)
            if until_ms is not None and until_ms <= now_ms:
                del group.promised[member_id]
                changed = changed or group.state is GroupState.PREPARING
            member = group.members.get(member_id)
            if member is None:
                continue
            ends_ms = group.ends_ms(member)
            if ends_ms is not None and ends_ms <= now_ms:
                if not self._log.in_flight(member.answer_number):
                    ended.append(member)
                    continue
                # Its answer waits for the replicas: it does not know yet that it is a member.
                member.touch(now_ms)
            self.plan_end(group, member, at)
        self.remove_all(group, ended)
        return changed or bool(ended)

    def _end_waiting(self, group: ClassicGroup, at: Moment) -> None:
        if group.is_gathering and group.newcomer and group.gathering_left_ms:
            group.newcomer = False
            delay_ms = min(self._settings.initial_delay_ms, group.gathering_left_ms)
            group.gathering_left_ms -= delay_ms
            self._wait_for_members(group, at.now_ms + delay_ms)
        elif len(away := self._away(group)) > DUE_MAX:
            # The deadline stays, and the others are late in the next step.
            self.remove_all(group, away[:DUE_MAX])
        else:
            self._complete(group, at)

    def _away(self, group: ClassicGroup) -> list[Member]:
        """Return the members that have not joined, without static ones."""
        return [
            member
            for member_id, member in group.members.items()
            if member_id not in group.joining and member.instance_id is None
        ]

    def record(self, group: ClassicGroup, at: Moment, *, with_last: bool = False) -> None:
        """Append the group's record, in one batch with the last of the step where that is asked."""
        group.state_ms = at.wall_ms
        entry = GroupKey(group.group_id), group.to_record()
        group.number = self._log.append(entry, with_last=with_last)


def _each_joined(group: ClassicGroup, requests: dict[str, int]) -> Iterator[Joined]:
    """Return the answers to JoinGroup requests in the present generation, as it is now; they may be
    drawn later."""
    generation, leader = group.generation, group.leader or ""
    protocol_type, protocol = group.protocol_type, group.protocol
    members: tuple[JoinedMember, ...] = group.for_leader() if leader in requests else ()
    return (
        Joined(
            request=request,
            member_id=member_id,
            generation=generation,
            protocol_type=protocol_type,
            protocol=protocol,
            leader=leader,
            members=members if member_id == leader else (),
        )
        for member_id, request in requests.items()
    )


def _each_synced(group: ClassicGroup, parts: list[tuple[int, bytes]]) -> Iterator[Synced]:
    """Return the answers to SyncGroup requests, each with its assignment, in the present
    generation; they may be drawn later."""
    protocol_type, protocol = group.protocol_type, group.protocol
    return (
        Synced(
            request=request,
            protocol_type=protocol_type,
            protocol=protocol,
            assignment=assignment,
        )
        for request, assignment in parts
    )
