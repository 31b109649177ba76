"""DescribeGroups, ListGroups and DeleteGroups: groups, for those who look after them.

Rule: nothing is told by a coordinator that is still loading, and no list is told as whole while
this broker leads a partition without one. A group that is not there is Dead in
DescribeGroups, as Kafka has it. Source: KIP-229, KIP-518, KIP-848 (types of groups).
"""

from functools import partial
from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.broker.handlers.groups.group_requests import ask_in_time
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.events import DeleteGroup
from storage_engine.core.groups.group import Group, GroupState
from storage_engine.core.ids import TopicPartition
from storage_engine.core.internal_topics import GROUP_OFFSETS_TOPIC
from storage_engine.protocol.apis.delete_groups import DeleteGroupsResponse
from storage_engine.protocol.apis.describe_groups import DescribeGroupsResponse
from storage_engine.protocol.apis.list_groups import ListGroupsResponse

DEAD = "Dead"
CLASSIC = "classic"
"""The type of all groups here."""

_Described = DescribeGroupsResponse.DescribedGroup


def describe(context: BrokerContext, call: Call, request: Any) -> Steps:
    groups = []
    # Each once: a group may have many members.
    for group_id in dict.fromkeys(request.groups):
        groups.append(_described(context, group_id))
        yield None
    call.respond(DescribeGroupsResponse(groups=groups))


def _described(context: BrokerContext, group_id: str) -> Any:
    found = context.group_coordinators.coordinator_of(group_id)
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
    return _Described(
        error_code=0,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            _Described.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
    )


def list_all(context: BrokerContext, call: Call, request: Any) -> Steps:
    states = {state.lower() for state in request.states_filter or ()}
    types = {each.lower() for each in request.types_filter or ()}
    known = context.metadata.partitions(GROUP_OFFSETS_TOPIC) or {}
    led = [
        TopicPartition(GROUP_OFFSETS_TOPIC, number)
        for number, state in known.items()
        if state.leader == context.broker_id
    ]
    coordinators = list(context.group_coordinators)
    whole = None not in coordinators and context.group_coordinators.are_loaded(led)
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
        if (not states or group.state.value.lower() in states) and (not types or CLASSIC in types):
            listed = ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )
            groups.append(listed)
    call.respond(ListGroupsResponse(error_code=int(code), groups=groups))


def delete(context: BrokerContext, call: Call, request: Any) -> Steps:
    names = list(dict.fromkeys(request.groups_names))
    codes: dict[str, ErrorCode] = {}

    def note(name: str, answer: Any) -> None:
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
        ask_in_time(
            context,
            name,
            lambda number, _, name=name: DeleteGroup(  # type: ignore[misc]
                request=number, group_id=name
            ),
            partial(note, name),
        )
