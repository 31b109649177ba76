"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of the members of classic groups."""

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState, Member
from storage_engine.core.groups.classic.joins import Joins
from storage_engine.core.groups.classic.rebalances import Rebalances
from storage_engine.core.groups.events import (
    GroupLog,
    Join,
    Joined,
    Leave,
    Left,
    MemberHeartbeat,
    RequestingMember,
    Sync,
)
from storage_engine.core.groups.group import Group
from storage_engine.core.groups.settings import GroupSettings


class ClassicRequests:
    def __init__(
        self,
        log: GroupLog,
        settings: GroupSettings,
        rebalances: Rebalances,
        groups: dict[str, Group],
    ) -> None:
        self._log = log
        self._settings = settings
        self._rebalances = rebalances
        self._joins = Joins(log, settings, rebalances)
        self._groups = groups

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def check(self, event: Join) -> ErrorCode:
        """Check what does not depend on the group."""
        return self._joins.check(event)

    def join(self, event: Join) -> None:
        code = self._joins.check(event)
        group = self._classic(event.group_id)
        if code is ErrorCode.NONE and group is None and event.member_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code is not ErrorCode.NONE:
            self._log.emit(Joined(request=event.request, error=code, member_id=event.member_id))
            return
        if group is None:
            group = ClassicGroup(group_id=event.group_id)
        self._joins.join(group, event)
        if group.members or group.promised:
            self._groups[event.group_id] = group

    def sync(self, event: Sync) -> None:
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

    def _take_assignments(self, group: ClassicGroup, event: Sync) -> ErrorCode:
        if group.bytes_with(event.assignments) > self._settings.record_max_bytes:
            return ErrorCode.INVALID_REQUEST
        for member in group.members.values():
            member.assignment = event.assignments.get(member.member_id, b"")
        return ErrorCode.NONE

    def heartbeat(self, event: MemberHeartbeat) -> None:
        group, code = self._group_of(event.group_id, event.caller)
        if group is not None:
            group.members[event.caller.member_id].touch(event.at.now_ms)
            if group.state is GroupState.PREPARING:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        self._log.refuse(event.request, code)

    def leave(self, event: Leave) -> None:
        group = self._classic(event.group_id)
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

    def _member_that_leaves(
        self, group: ClassicGroup, caller: RequestingMember
    ) -> Member | ErrorCode:
        if not caller.member_id and caller.instance_id is not None:
            # An operator removes a static member by its instance id, whatever its member id is.
            member_id = group.instances.get(caller.instance_id)
            return ErrorCode.UNKNOWN_MEMBER_ID if member_id is None else group.members[member_id]
        code = group.check(caller)
        return group.members[caller.member_id] if code is ErrorCode.NONE else code

    def _group_of(
        self, group_id: str, caller: RequestingMember
    ) -> tuple[ClassicGroup | None, ErrorCode]:
        """Return the group whose present generation the caller is in, or why there is none."""
        if not group_id:
            return None, ErrorCode.INVALID_GROUP_ID
        group = self._classic(group_id)
        if group is None:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        code = group.check_generation(caller)
        return (group, code) if code is ErrorCode.NONE else (None, code)


def _fits(given: str | None, known: str | None) -> bool:
    """Return True when a client names the same value as the group has, or none, as old versions
    do."""
    return given is None or given == known
