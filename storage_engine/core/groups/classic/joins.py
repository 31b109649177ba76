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
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState, Member
from storage_engine.core.groups.classic.offers import Offer
from storage_engine.core.groups.classic.rebalances import NEW_MEMBER_TIMEOUT_MS, Rebalances
from storage_engine.core.groups.consumer_protocol import subscribed_topics
from storage_engine.core.groups.events import NO_MEMBER, GroupLog, Join, Joined, RequestingMember
from storage_engine.core.groups.settings import GroupSettings

PROMISED_MAX = 5_000
"""Ids of one group that were given out and not come back: a client that only asks for ids must not
fill the memory."""

COMPARED_MAX_BYTES = 64 << 10
"""Metadata in which the topics are looked up when a static member comes back with other metadata;
with more of it a rebalance begins."""


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

    def join(self, group: ClassicGroup, event: Join) -> None:
        member_id = event.member_id
        offer = Offer(event.protocols)
        promised = member_id in group.promised
        static_id = None if event.instance_id is None else group.instances.get(event.instance_id)
        takes_place = member_id == NO_MEMBER and static_id is not None
        if not takes_place and group.is_full(self._settings.max_size, member_id):
            self._refuse(group, event, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(event.protocol_type, offer, but_for=static_id or member_id):
            self._refuse(group, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        else:
            is_new = member_id == NO_MEMBER or (promised and event.instance_id is None)
            caller = RequestingMember(member_id=member_id, instance_id=event.instance_id)
            code = ErrorCode.NONE if is_new else group.check(caller)
            before = group.members.get(static_id or member_id)
            joining = _member(member_id or event.fresh_member_id, event, offer)
            if code is ErrorCode.NONE and self._outgrows(group, event, joining, before):
                code = ErrorCode.INVALID_REQUEST
            if code is not ErrorCode.NONE:
                self._refuse(group, event, code)
            elif member_id == NO_MEMBER:
                self._join_newly(group, event, joining, static_id)
            elif is_new:
                self._add(group, joining, event)
            else:
                self._join_again(group, group.members[member_id], event, offer)

    def _outgrows(
        self, group: ClassicGroup, event: Join, joining: Member, before: Member | None
    ) -> bool:
        """Return True when the joining member would make the group's record too large, or the
        protocols of all members together. `before` is the same member as it was, or the member
        whose place it takes; the record always has room for one that is no larger than `before`.

        During a rebalance, and when one begins, only the members count that are sure to be in the
        next generation: the others may be dead, or have come back under another id. When a member
        of the last generation joins, newcomers do not count, since the next generation begins
        without those for which it has no room: no member has to go for a newcomer."""
        if not group.offers.has_room_for(
            joining.offer, instead_of=None if before is None else before.offer
        ):
            return True
        if before is not None and joining.is_no_larger_than(before, group.protocol):
            return False
        sizes = group.sizes
        own = 0 if before is None else before.most_bytes
        if event.member_id == NO_MEMBER and before and _keeps_part(group, before, joining):
            assigned = sum(len(member.assignment) for member in group.members.values())
            others = sizes.members - own + assigned
        elif before is None or before.member_id in group.newcomers:
            others = sizes.sure - own
        else:
            is_sure = before.instance_id is not None or before.member_id in group.joining
            others = sizes.sure - sizes.newcomers - (own if is_sure else 0)
        return group.bytes_after(joining, others) > self._settings.record_max_bytes

    def _join_newly(
        self, group: ClassicGroup, event: Join, joining: Member, static_id: str | None
    ) -> None:
        if static_id is not None:
            self._replace_static(group, group.members[static_id], event, joining)
        elif event.instance_id is None and event.asks_for_id:
            if len(group.promised) >= PROMISED_MAX:
                self._refuse(group, event, ErrorCode.GROUP_MAX_SIZE_REACHED)
                return
            fresh = event.fresh_member_id
            until_ms = event.at.now_ms + event.session_timeout_ms
            self._rebalances.promise(group, fresh, until_ms)
            code = ErrorCode.MEMBER_ID_REQUIRED
            self._log.emit(Joined(request=event.request, error=code, member_id=fresh))
        else:
            self._add(group, joining, event)

    def _add(self, group: ClassicGroup, member: Member, event: Join) -> None:
        group.promised.pop(member.member_id, None)
        if not group.members:
            group.protocol_type = event.protocol_type
        group.add(member)
        group.note_new(member)
        group.wait_to_join(member, event.request)
        self._rebalances.plan_end(group, member, event.at)
        group.leader = group.leader or member.member_id
        if group.is_gathering:
            group.newcomer = True
        self._rebalances.prepare_unless_preparing(group, event.at)

    def _join_again(self, group: ClassicGroup, member: Member, event: Join, offer: Offer) -> None:
        if group.state in (GroupState.COMPLETING, GroupState.STABLE):
            is_same = member.offer == offer
            leads_stable = group.state is GroupState.STABLE and group.leader == member.member_id
            if is_same and not leads_stable:
                # The member has not received the answer for the generation that it is part of.
                member.touch(event.at.now_ms)
                answer = self._rebalances.joined(group, member, event.request)
                self._rebalances.answer(group, member, answer)
                return
        # The client has given up waiting for these requests.
        self._end_requests(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._update(group, member, event, offer)
        if len(group.members) == 1:
            group.protocol_type = event.protocol_type
        group.wait_to_join(member, event.request)
        self._rebalances.prepare_unless_preparing(group, event.at)

    def _end_requests(self, group: ClassicGroup, member: Member, code: ErrorCode) -> None:
        joining = group.no_longer_joins(member)
        for request in (joining, group.syncing.pop(member.member_id, None)):
            if request is not None:
                self._log.emit(Answer(request=request, error=code))

    def _update(self, group: ClassicGroup, member: Member, event: Join, offer: Offer) -> None:
        def change(member: Member) -> None:
            member.offer = offer
            member.client_id = event.client_id
            member.client_host = event.client_host

        group.change(member, change)
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.touch(event.at.now_ms)
        if member.member_id in group.newcomers:
            member.deadline_ms = event.at.now_ms + NEW_MEMBER_TIMEOUT_MS
        self._rebalances.plan_end(group, member, event.at)

    def _replace_static(
        self, group: ClassicGroup, old: Member, event: Join, member: Member
    ) -> None:
        leader = group.leader
        keeps_part = _keeps_part(group, old, member)
        self._end_requests(group, old, ErrorCode.FENCED_INSTANCE_ID)
        is_unsynced = old.member_id in group.unsynced
        is_new = old.member_id in group.newcomers
        group.drop(old)
        self._rebalances.forget(group, old.member_id)
        member.assignment, member.answer_number = old.assignment, old.answer_number
        if not is_new:
            member.touch(event.at.now_ms)
        group.add(member)
        if is_new:
            group.note_new(member)
        if is_unsynced:
            group.unsynced.add(member.member_id)
        if leader == old.member_id:
            group.leader = member.member_id
        self._rebalances.plan_end(group, member, event.at)
        if keeps_part:
            self._keep_part(group, member, event, leader)
            return
        group.wait_to_join(member, event.request)
        self._rebalances.prepare_unless_preparing(group, event.at)

    def _keep_part(
        self, group: ClassicGroup, member: Member, event: Join, leader: str | None
    ) -> None:
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

    def _refuse(self, group: ClassicGroup, event: Join, code: ErrorCode) -> None:
        self._log.emit(Joined(request=event.request, error=code, member_id=event.member_id))
        if group.promised.pop(event.member_id, None) is not None:
            self._rebalances.forget(group, event.member_id)
            # The member that was promised this id has come: the others no longer wait for one of
            # that id.
            self._rebalances.complete_if_ready(group, event.at)


def _keeps_part(group: ClassicGroup, old: Member, new: Member) -> bool:
    """Return True when a member that takes another's place changes nothing for the others, so that
    no rebalance is needed."""
    if group.state is not GroupState.STABLE:
        return False
    if group.chosen_with(new.offer, instead_of=old) != group.protocol:
        return False
    before, after = old.metadata(group.protocol), new.metadata(group.protocol)
    if before == after:
        return True
    return len(before) + len(after) <= COMPARED_MAX_BYTES and (
        subscribed_topics(before) == subscribed_topics(after)
    )


def _member(member_id: str, event: Join, offer: Offer) -> Member:
    return Member(
        member_id=member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        session_timeout_ms=event.session_timeout_ms,
        offer=offer,
        deadline_ms=event.at.now_ms + NEW_MEMBER_TIMEOUT_MS,
    )
