"""Admits members to a group. An instance id belongs to one member, the last that joined with it;
the one before is fenced.

    ""             dynamic   an id is promised first (KIP-394), then it comes with it
                   static    at once; it takes the place of the one before (KIP-345)
    a member's id            it joins anew, which begins a rebalance where that makes a difference

Source: Kafka's classic group protocol; KIP-345, KIP-394, KIP-814.
"""

from dataclasses import replace

from storage_engine.core.coordinator_log import Answer
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.events import NO_MEMBER, GroupLog, Join, Joined, RequestingMember
from storage_engine.core.groups.group import Group, GroupState, Member, chosen_protocol
from storage_engine.core.groups.rebalances import NEW_MEMBER_TIMEOUT_MS, GroupSettings, Rebalances
from storage_engine.core.groups.subscription import subscribed_topics

PROMISED_MAX = 5_000
"""Ids of one group that were given out and not come back: a client that only asks for ids must not
fill the memory."""


class Joins:
    """JoinGroup requests to one coordinator."""

    def __init__(self, log: GroupLog, settings: GroupSettings, rebalances: Rebalances) -> None:
        self._log = log
        self._settings = settings
        self._rebalances = rebalances

    def check(self, event: Join) -> ErrorCode:
        """Checks of the request that do not depend on the group."""
        settings = self._settings
        if not event.group_id:
            return ErrorCode.INVALID_GROUP_ID
        lowest, highest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        if not lowest <= event.session_timeout_ms <= highest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if sum(len(name) + len(metadata) for name, metadata in event.protocols) > (
            settings.record_max_bytes
        ):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def join(self, group: Group, event: Join) -> None:
        member_id = event.member_id
        promised = member_id in group.promised
        static_id = None if event.instance_id is None else group.instances.get(event.instance_id)
        takes_place = member_id == NO_MEMBER and static_id is not None
        if not takes_place and group.is_full(self._settings.max_size, member_id):
            self._refuse(group, event, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(
            event.protocol_type, event.protocols, but_for=static_id or member_id
        ):
            self._refuse(group, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        else:
            is_new = member_id == NO_MEMBER or (promised and event.instance_id is None)
            caller = RequestingMember(member_id=member_id, instance_id=event.instance_id)
            code = ErrorCode.NONE if is_new else group.check(caller)
            before = group.members.get(static_id or member_id)
            if code is ErrorCode.NONE and self._outgrows(group, event, before):
                code = ErrorCode.INVALID_REQUEST
            if code is not ErrorCode.NONE:
                self._refuse(group, event, code)
            elif member_id == NO_MEMBER:
                self._join_newly(group, event, static_id)
            elif is_new:
                self._add(group, member_id, event)
            else:
                self._join_again(group, group.members[member_id], event)

    def _outgrows(self, group: Group, event: Join, before: Member | None) -> bool:
        """Return True when the group's record would be too large with the joining member, unless
        that one makes it no larger. `before` is the member whose place it takes, or itself.

        During a rebalance, and when one begins, only members count that are sure to be in the next
        generation: the others may be dead, or be former incarnations of members that join. For a
        member of the last generation newcomers don't count, which are refused when the next one
        begins: no member has to go for the sake of one that has just come."""
        joining = _member(event.member_id or event.fresh_member_id, event)
        if before is not None and joining.is_no_larger_than(before, group.protocol):
            return False
        others = [member for member in group.members.values() if member is not before]
        assigned = 0
        if event.member_id == NO_MEMBER and before and _keeps_part(group, before, joining):
            assigned = sum(len(member.assignment) for member in group.members.values())
        else:
            is_newcomer = before is None or before.is_new
            others = [
                each
                for each in others
                if (each.instance_id is not None or each.joining is not None)
                and (is_newcomer or not each.is_new)
            ]
        return group.bytes_after(joining, others) + assigned > self._settings.record_max_bytes

    # --- joining without a member id ---

    def _join_newly(self, group: Group, event: Join, static_id: str | None) -> None:
        if static_id is not None:
            self._replace_static(group, group.members[static_id], event)
        elif event.instance_id is None and event.asks_for_id:
            if len(group.promised) >= PROMISED_MAX:
                self._refuse(group, event, ErrorCode.GROUP_MAX_SIZE_REACHED)
                return
            fresh = event.fresh_member_id
            group.promised[fresh] = event.at.now_ms + event.session_timeout_ms
            code = ErrorCode.MEMBER_ID_REQUIRED
            self._log.emit(Joined(request=event.request, error=code, member_id=fresh))
        else:
            self._add(group, event.fresh_member_id, event)

    def _add(self, group: Group, member_id: str, event: Join) -> None:
        group.promised.pop(member_id, None)
        if not group.members:
            group.protocol_type = event.protocol_type
        group.members[member_id] = member = _member(member_id, event)
        member.joining = event.request
        if event.instance_id is not None:
            group.instances[event.instance_id] = member_id
        group.leader = group.leader or member_id
        if group.is_gathering:
            group.newcomer = True
        self._rebalances.prepare_unless_preparing(group, event.at)

    # --- members that come back ---

    def _join_again(self, group: Group, member: Member, event: Join) -> None:
        if group.state in (GroupState.COMPLETING, GroupState.STABLE):
            is_same = member.protocols == event.protocols
            leads_stable = group.state is GroupState.STABLE and group.leader == member.member_id
            if is_same and not leads_stable:
                # The member has not received the answer for the generation that it is part of.
                member.touch(event.at.now_ms)
                answer = self._rebalances.joined(group, member, event.request)
                self._rebalances.answer(group, member, answer)
                return
        self._update(member, event)
        if len(group.members) == 1:
            group.protocol_type = event.protocol_type
        member.joining = event.request
        self._rebalances.prepare_unless_preparing(group, event.at)

    def _update(self, member: Member, event: Join) -> None:
        for request in (member.joining, member.syncing):
            if request is not None:
                # The client has given up waiting for that request.
                code = ErrorCode.REBALANCE_IN_PROGRESS
                self._log.emit(Answer(request=request, error=code))
        member.joining = member.syncing = None
        member.protocols = event.protocols
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.client_id = event.client_id
        member.client_host = event.client_host
        member.measure()
        member.touch(event.at.now_ms)
        if member.is_new:
            member.deadline_ms = event.at.now_ms + NEW_MEMBER_TIMEOUT_MS

    # --- static members that are started again ---

    def _replace_static(self, group: Group, old: Member, event: Join) -> None:
        leader = group.leader
        keeps_part = _keeps_part(group, old, _member(event.fresh_member_id, event))
        member = replace(old, member_id=event.fresh_member_id, joining=None, syncing=None)
        for request in (old.joining, old.syncing):
            if request is not None:
                code = ErrorCode.FENCED_INSTANCE_ID
                self._log.emit(Answer(request=request, error=code))
        assert event.instance_id is not None
        group.members = {
            **{key: each for key, each in group.members.items() if key != old.member_id},
            member.member_id: member,
        }
        group.instances[event.instance_id] = member.member_id
        if old.member_id in group.unsynced:
            group.unsynced.discard(old.member_id)
            group.unsynced.add(member.member_id)
        if leader == old.member_id:
            group.leader = member.member_id
        self._update(member, event)
        if keeps_part:
            self._keep_part(group, member, event, leader)
            return
        member.joining = event.request
        self._rebalances.prepare_unless_preparing(group, event.at)

    def _keep_part(self, group: Group, member: Member, event: Join, leader: str | None) -> None:
        """Give the member the assignment of the one whose place it takes; nothing changes for the
        others."""
        self._rebalances.record(group, event.at)
        answer = self._rebalances.joined(group, member, event.request)
        if group.leader == member.member_id:
            if event.skips_assignment:
                answer = replace(answer, skip_assignment=True)
            else:
                # The answer names another leader, so that it does not assign anew what the others
                # hold.
                answer = replace(answer, leader=leader or NO_MEMBER, members=())
        self._rebalances.answer(group, member, answer)

    def _refuse(self, group: Group, event: Join, code: ErrorCode) -> None:
        self._log.emit(Joined(request=event.request, error=code, member_id=event.member_id))
        if group.promised.pop(event.member_id, None) is not None:
            # The member that was promised this id has come: the others no longer wait for one of
            # that id.
            self._rebalances.complete_if_ready(group, event.at)


def _keeps_part(group: Group, old: Member, new: Member) -> bool:
    """Return True when a member that takes another's place changes nothing for the others, so that
    no rebalance is needed."""
    if group.state is not GroupState.STABLE:
        return False
    others = [member for member in group.members.values() if member is not old]
    return chosen_protocol([*others, new]) == group.protocol and (
        subscribed_topics(new.metadata(group.protocol))
        == subscribed_topics(old.metadata(group.protocol))
    )


def _member(member_id: str, event: Join) -> Member:
    """Return a new member."""
    return Member(
        member_id=member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        session_timeout_ms=event.session_timeout_ms,
        protocols=event.protocols,
        deadline_ms=event.at.now_ms + NEW_MEMBER_TIMEOUT_MS,
        is_new=True,
    )
