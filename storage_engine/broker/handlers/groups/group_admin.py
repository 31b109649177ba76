"""DescribeGroups, ListGroups and DeleteGroups: the administration of groups.

A coordinator that is still loading answers nothing, and while this broker leads a partition without
a coordinator, a list of groups comes with an error. A group that does not exist is Dead in
DescribeGroups, as in Kafka. Source: KIP-229, KIP-518, KIP-848 (types of groups).
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.groups.group_requests import GroupRequests
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.coordinator_log import Answer, Moment
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.events import DeleteGroup
from storage_engine.core.groups.group import Group, GroupState
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC, BrokerId, TopicPartition
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from storage_engine.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from storage_engine.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

DEAD = "Dead"
CLASSIC = "classic"
"""The type of all groups here."""

_Described = DescribeGroupsResponse.DescribedGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAdminHandlers:
    """Answers DescribeGroups, ListGroups and DeleteGroups."""

    requests: GroupRequests
    metadata: MetadataCache
    broker_id: BrokerId

    def describe(
        self, call: ApiCall[DescribeGroupsResponse], request: DescribeGroupsRequest
    ) -> Steps:
        groups = []
        # Each once: a group may have many members.
        for group_id in dict.fromkeys(request.groups):
            groups.append((yield from self._described(group_id)))
            yield None
        call.respond(DescribeGroupsResponse(groups=groups))

    def _described(self, group_id: str) -> Generator[None, None, _Described]:
        found = self.requests.coordinators.coordinator_of(group_id)
        group: Group | None = None
        code = ErrorCode.NONE
        if isinstance(found, ErrorCode):
            code = found
        else:
            assert isinstance(found, GroupCoordinator)
            group = found.groups.get(group_id)
        if group is None:
            return _Described(
                error_code=int(code),
                group_id=group_id,
                group_state="" if code is not ErrorCode.NONE else DEAD,
                protocol_type="",
                protocol_data="",
                members=[],
            )
        is_stable = group.state is GroupState.STABLE
        protocol = group.protocol
        described = _Described(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(protocol or "") if is_stable else "",
        )
        members = []
        # A copy: members may come and go while others have their turn.
        for member in list(group.members.values()):
            yield None
            members.append(
                _Described.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(protocol) if is_stable else b"",
                    member_assignment=member.assignment if is_stable else b"",
                )
            )
        described.members = members
        return described

    def list_all(self, call: ApiCall[ListGroupsResponse], request: ListGroupsRequest) -> Steps:
        states = {state.lower() for state in request.states_filter or ()}
        types = {each.lower() for each in request.types_filter or ()}
        known = self.metadata.partitions(GROUP_OFFSETS_TOPIC) or {}
        led = [
            TopicPartition(GROUP_OFFSETS_TOPIC, number)
            for number, state in known.items()
            if state.leader == self.broker_id
        ]
        coordinators = list(self.requests.coordinators)
        whole = None not in coordinators and self.requests.coordinators.are_loaded(led)
        code = ErrorCode.NONE if whole else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        # A copy: groups may come and go while others have their turn.
        found = [
            group
            for coordinator in coordinators
            if isinstance(coordinator, GroupCoordinator)
            for group in coordinator.groups.values()
        ]
        groups = []
        for group in found:
            yield None
            if (not states or group.state.value.lower() in states) and (
                not types or CLASSIC in types
            ):
                listed = ListGroupsResponse.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
                groups.append(listed)
        call.respond(ListGroupsResponse(error_code=int(code), groups=groups))

    def delete(self, call: ApiCall[DeleteGroupsResponse], request: DeleteGroupsRequest) -> Steps:
        names = list(dict.fromkeys(request.groups_names))
        codes: dict[str, ErrorCode] = {}

        def note(name: str, answer: Answer) -> None:
            codes[name] = answer.error
            if len(codes) == len(names):
                call.run(respond())

        def respond() -> Steps:
            row = DeleteGroupsResponse.DeletableGroupResult
            results = []
            for name in names:
                results.append(row(group_id=name, error_code=int(codes[name])))
                yield None
            call.respond(DeleteGroupsResponse(results=results))

        if not names:
            yield from respond()
        for name in names:
            yield None

            def event_of(number: int, _at: Moment, name: str = name) -> DeleteGroup:
                return DeleteGroup(request=number, group_id=name)

            allowed = call.while_allowed(event_of, ResourceType.GROUP, name)
            self.requests.ask_in_time(name, allowed, partial(note, name))
