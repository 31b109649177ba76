"""Takes a group from one generation to the next. A generation begins when all members have joined,
or when the rebalance timeout of the others is over; and no member gets its assignment before the
group's record is replicated.

Source: Kafka's classic group protocol; KIP-62 (rebalance timeout), KIP-134 (the first members are
gathered), KIP-345, KIP-394, KIP-447.
"""

from dataclasses import dataclass

from storage_engine.core.coordinator_log import Answer, Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import GroupLog, Joined, Synced
from storage_engine.core.groups.group import Group, GroupState, Member
from storage_engine.core.groups.records import GroupKey

NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000
"""How long a member that has never been in a generation may wait for one. Kafka has the same
constant, and no setting."""

AWAY_MS = 1_000
"""How long at least the group waits for static members that are away before it checks again: their
own rebalance timeout may be 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of the broker that a coordinator uses."""

    initial_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    record_max_bytes: int = 8 << 20
    """The limit of a group's record."""


class Rebalances:
    """Rebalances of all groups of one coordinator."""

    def __init__(self, log: GroupLog, settings: GroupSettings) -> None:
        self._log = log
        self._settings = settings

    # --- beginning ---

    def prepare(self, group: Group, at: Moment) -> None:
        """Begin a rebalance: all members have to join anew."""
        assert group.state is not GroupState.PREPARING, "that is under way"
        for member in group.members.values():
            self._end_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, at)
        group.unsynced.clear()
        group.sync_deadline_ms = None
        delay_ms = self._settings.initial_delay_ms
        group.is_gathering = group.state is GroupState.EMPTY and delay_ms > 0
        group.newcomer = False
        group.state = GroupState.PREPARING
        if group.is_gathering:
            group.gathering_left_ms = max(0, group.rebalance_timeout_ms - delay_ms)
            group.join_deadline_ms = at.now_ms + delay_ms
        else:
            group.join_deadline_ms = at.now_ms + group.rebalance_timeout_ms
        self.complete_if_ready(group, at)

    def prepare_unless_preparing(self, group: Group, at: Moment) -> None:
        """Begin a rebalance after a member has come or gone, unless one is under way."""
        if group.state is GroupState.PREPARING:
            self.complete_if_ready(group, at)
        else:
            self.prepare(group, at)

    # --- ending ---

    def complete_if_ready(self, group: Group, at: Moment) -> None:
        if group.state is GroupState.PREPARING and not group.is_gathering and group.all_joined:
            self._complete(group, at)

    def _complete(self, group: Group, at: Moment) -> None:
        group.is_gathering = False
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                self.remove(group, member)
        self._refuse_newcomers_that_do_not_fit(group)
        joined = [m for m in group.members.values() if m.joining is not None]
        if group.members and not joined:
            # Static members that are away keep their assignment until their sessions end.
            group.join_deadline_ms = at.now_ms + max(AWAY_MS, group.rebalance_timeout_ms)
            return
        group.join_deadline_ms = None
        group.generation += 1
        if not joined:
            group.state = GroupState.EMPTY
            group.protocol = group.leader = None
            self.record(group, at)
            return
        if group.leader not in {member.member_id for member in joined}:
            group.leader = joined[0].member_id
        group.protocol = group.choose_protocol()
        group.state = GroupState.COMPLETING
        group.unsynced = set(group.members)
        group.sync_deadline_ms = at.now_ms + group.rebalance_timeout_ms
        for member in joined:
            assert member.joining is not None
            request, member.joining = member.joining, None
            member.is_new = False
            member.assignment = b""
            member.touch(at.now_ms)
            self._log.emit(self.joined(group, member, request))

    def _refuse_newcomers_that_do_not_fit(self, group: Group) -> None:
        """Refuse the last newcomers, as many as make the record too large. When they came it was
        open which members would be in this generation; those of the last generation stay, even if
        the record is too large with them."""
        newcomers = [member for member in group.members.values() if member.is_new]
        if not newcomers:
            return
        others = [member for member in group.members.values() if member is not newcomers[-1]]
        size = group.bytes_after(newcomers[-1], others)
        while newcomers and size > self._settings.record_max_bytes:
            last = newcomers.pop()
            size -= last.most_bytes
            self.remove(group, last, ErrorCode.INVALID_REQUEST)

    def joined(self, group: Group, member: Member, request: int) -> Joined:
        """Return the answer to a member's JoinGroup in the present generation."""
        leads = member.member_id == group.leader
        return Joined(
            request=request,
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader or "",
            members=group.for_leader() if leads else (),
        )

    # --- assignments ---

    def synced(self, group: Group, member: Member, request: int) -> Synced:
        return Synced(
            request=request,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            assignment=member.assignment,
        )

    def answer(self, group: Group, member: Member, answer: Answer) -> None:
        """Answer a member once the group's last record is replicated."""
        member.answer_number = group.number
        self._log.answer(answer, after=group.number)

    def assign(self, group: Group, at: Moment) -> None:
        """Take the leader's assignments as made: record them and answer the members that wait."""
        group.state = GroupState.STABLE
        self.record(group, at)
        for member in group.members.values():
            if member.syncing is not None:
                request, member.syncing = member.syncing, None
                member.touch(at.now_ms)
                self.answer(group, member, self.synced(group, member, request))

    def note_synced(self, group: Group, member: Member) -> None:
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            group.sync_deadline_ms = None

    def _end_sync(self, member: Member, code: ErrorCode, at: Moment) -> None:
        if member.syncing is not None:
            request, member.syncing = member.syncing, None
            member.touch(at.now_ms)
            self._log.refuse(request, code)

    # --- leaving members ---

    def remove(
        self, group: Group, member: Member, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID
    ) -> None:
        """Remove a member; its open requests are answered with the code."""
        member_id = member.member_id
        if member.joining is not None:
            self._log.emit(Joined(request=member.joining, error=code, member_id=member_id))
        if member.syncing is not None:
            self._log.emit(Answer(request=member.syncing, error=code))
        del group.members[member_id]
        if member.instance_id is not None and group.instances[member.instance_id] == member_id:
            del group.instances[member.instance_id]
        self.note_synced(group, member)
        if group.leader == member_id:
            group.leader = next(iter(group.members), None)

    def check_deadlines(self, group: Group, at: Moment) -> None:
        """Expire promised ids, sessions and the time to join or sync, as far as they are due."""
        now_ms = at.now_ms
        changed = False
        for member_id, until_ms in list(group.promised.items()):
            if until_ms <= now_ms:
                del group.promised[member_id]
                changed = changed or group.state is GroupState.PREPARING
        for member in list(group.members.values()):
            if member.ends_ms is None or member.ends_ms > now_ms:
                continue
            if self._log.in_flight(member.answer_number):
                # Its answer waits for the replicas: it does not know yet that it is a member.
                member.touch(now_ms)
            else:
                self.remove(group, member)
                changed = True
        if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now_ms:
            group.sync_deadline_ms = None
            for member_id in sorted(group.unsynced):
                self.remove(group, group.members[member_id])
                changed = True
        if changed:
            self.prepare_unless_preparing(group, at)
        if group.join_deadline_ms is not None and group.join_deadline_ms <= now_ms:
            self._end_waiting(group, at)

    def _end_waiting(self, group: Group, at: Moment) -> None:
        if group.is_gathering and group.newcomer and group.gathering_left_ms:
            group.newcomer = False
            delay_ms = min(self._settings.initial_delay_ms, group.gathering_left_ms)
            group.gathering_left_ms -= delay_ms
            group.join_deadline_ms = at.now_ms + delay_ms
        else:
            self._complete(group, at)

    # --- the log ---

    def record(self, group: Group, at: Moment) -> None:
        group.state_ms = at.wall_ms
        group.number = self._log.append((GroupKey(group.group_id), group.to_record()))
