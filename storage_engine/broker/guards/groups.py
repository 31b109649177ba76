"""The rights of members of groups, and to administer groups."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from storage_engine.broker.guards.client import REFUSALS, Asked, RequestClient, Right, passed
from storage_engine.broker.guards.shares import (
    Building,
    ByItem,
    briefly,
    each_refused,
    first_asks,
    of_partitions,
    only,
    row_of,
    rows_of,
    whole,
    with_rows,
)
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.security.acl_rules import CLUSTER_NAME, AclOperation, ResourceType
from storage_engine.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from storage_engine.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from storage_engine.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from storage_engine.protocol.messages.heartbeat import HeartbeatResponse
from storage_engine.protocol.messages.join_group import JoinGroupResponse
from storage_engine.protocol.messages.leave_group import LeaveGroupResponse
from storage_engine.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from storage_engine.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from storage_engine.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from storage_engine.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from storage_engine.protocol.messages.sync_group import SyncGroupResponse

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP


class OfGroup(Protocol):
    """A request that names a group."""

    @property
    def group_id(self) -> str: ...


def of_group(operation: AclOperation) -> Callable[[OfGroup], Iterable[Right]]:
    """Makes the right to the group that the request names."""
    return lambda request: (Right(operation, _GROUP, request.group_id),)


_READS = of_group(AclOperation.READ)

join_group = whole(
    _READS,
    briefly(
        lambda code: JoinGroupResponse(
            error_code=code,
            generation_id=-1,
            protocol_name="",
            leader="",
            member_id="",
            members=[],
        )
    ),
)
sync_group = whole(_READS, briefly(lambda code: SyncGroupResponse(error_code=code, assignment=b"")))
heartbeat = whole(_READS, briefly(lambda code: HeartbeatResponse(error_code=code)))
leave_group = whole(_READS, briefly(lambda code: LeaveGroupResponse(error_code=code, members=[])))

_Committed = OffsetCommitResponse.OffsetCommitResponseTopic


_uncommitted = of_partitions(_Committed, _Committed.OffsetCommitResponsePartition)


def _commit_refused(request: OffsetCommitRequest, code: int) -> Building[OffsetCommitResponse]:
    rows = yield from each_refused(request.topics, _uncommitted, code)
    return OffsetCommitResponse(topics=rows)


offset_commit = first_asks(
    _READS,
    _commit_refused,
    ByItem[OffsetCommitRequest.OffsetCommitRequestTopic, OffsetCommitRequest, OffsetCommitResponse](
        operation=AclOperation.READ,
        row=_uncommitted,
        answer_class=OffsetCommitResponse,
    ),
)

_Deleted = OffsetDeleteResponse.OffsetDeleteResponseTopic


_undeleted = of_partitions(_Deleted, _Deleted.OffsetDeleteResponsePartition)


offset_delete = first_asks(
    of_group(AclOperation.DELETE),
    briefly(lambda code: OffsetDeleteResponse(error_code=code, topics=[])),
    ByItem[OffsetDeleteRequest.OffsetDeleteRequestTopic, OffsetDeleteRequest, OffsetDeleteResponse](
        operation=AclOperation.READ,
        row=_undeleted,
        answer_class=OffsetDeleteResponse,
    ),
)

_Topic = OffsetFetchRequest.OffsetFetchRequestTopic
_GroupTopic = OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics
_FetchedTopic = OffsetFetchResponse.OffsetFetchResponseTopic
_FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup
_FetchedGroupTopic = _FetchedGroup.OffsetFetchResponseTopics


_unfetched = of_partitions(
    _FetchedTopic, _FetchedTopic.OffsetFetchResponsePartition, committed_offset=-1
)


_unfetched_of_group = of_partitions(
    _FetchedGroupTopic, _FetchedGroupTopic.OffsetFetchResponsePartitions, committed_offset=-1
)


class HasName(Protocol):
    """A topic with a name."""

    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=HasName)
NamedRow = TypeVar("NamedRow", bound=HasName)

FIRST_OFFSET_FETCH_WITH_GROUPS = 8
FIRST_OFFSET_FETCH_WITH_ERROR = 2


def offset_fetch(asked: Asked[OffsetFetchRequest, OffsetFetchResponse]) -> Steps:
    client, call, request, handler = asked
    if call.version >= FIRST_OFFSET_FETCH_WITH_GROUPS:
        yield from _fetch_of_groups(asked)
        return
    client.grant((Right(AclOperation.DESCRIBE, _GROUP, request.group_id),))
    if not client.may(AclOperation.DESCRIBE, _GROUP, request.group_id):
        code = int(REFUSALS[_GROUP])
        denied: Sequence[_FetchedTopic] = ()
        if call.version < FIRST_OFFSET_FETCH_WITH_ERROR:
            denied = yield from each_refused(request.topics, _unfetched, code)
        call.respond(OffsetFetchResponse(topics=denied, error_code=code))
        return
    request.topics, rows = yield from _split_topics(client, request.topics, _unfetched)

    def amend(answer: OffsetFetchResponse) -> Building[OffsetFetchResponse]:
        if not answer.error_code:
            answer.topics = yield from _shown(client, answer.topics, rows)
        return answer

    call.amend = amend
    yield from passed(handler, call, request)


def _fetch_of_groups(asked: Asked[OffsetFetchRequest, OffsetFetchResponse]) -> Steps:
    client, call, request, handler = asked
    names = [group.group_id for group in request.groups]
    client.grant(each=AclOperation.DESCRIBE)
    refused = yield from client.refused(AclOperation.DESCRIBE, _GROUP, names)
    denied = yield from rows_of(
        refused, lambda name: _FetchedGroup(group_id=name, error_code=int(REFUSALS[_GROUP]))
    )
    request.groups = [group for group in request.groups if group.group_id not in refused]
    rows: dict[str, list[_FetchedGroupTopic]] = {}
    for group in request.groups:
        group.topics, rows[group.group_id] = yield from _split_topics(
            client, group.topics, _unfetched_of_group
        )

    def amend(answer: OffsetFetchResponse) -> Building[OffsetFetchResponse]:
        for group in answer.groups:
            if not group.error_code:
                refusals = rows.get(group.group_id, ())
                group.topics = yield from _shown(client, group.topics, refusals)
        answer.groups = [*answer.groups, *denied]
        return answer

    call.amend = amend
    yield from passed(handler, call, request)


def _split_topics(
    client: RequestClient,
    topics: Sequence[Named] | None,
    row: Callable[[Named, int], Building[NamedRow]],
) -> Building[tuple[list[Named] | None, list[NamedRow]]]:
    """Return (permitted topics, rows of the refused ones); None stays None."""
    if topics is None:
        return None, []
    names = [topic.name for topic in topics]
    refused = yield from client.refused(AclOperation.DESCRIBE, _TOPIC, names)
    kept, rows = [], []
    for topic in topics:
        if topic.name in refused:
            rows.append((yield from row(topic, int(REFUSALS[_TOPIC]))))
        else:
            kept.append(topic)
    return kept, rows


def _shown(
    client: RequestClient, topics: Iterable[NamedRow], rows: Sequence[NamedRow]
) -> Building[list[NamedRow]]:
    """Add the refusals; topics that the client may not describe are left out."""
    found = []
    for topic in topics:
        if client.may_unlogged(AclOperation.DESCRIBE, _TOPIC, topic.name):
            found.append(topic)
        yield None
    return [*found, *rows]


FIRST_WITH_MANY_KEYS = 4
_KINDS_OF_KEYS = {0: _GROUP, 1: ResourceType.TRANSACTIONAL_ID}


def find_coordinator(asked: Asked[FindCoordinatorRequest, FindCoordinatorResponse]) -> Steps:
    client, call, request, handler = asked
    kind = _KINDS_OF_KEYS.get(request.key_type)
    if kind is None:
        # There are no other kinds: the handler refuses it.
        yield from passed(handler, call, request)
        return
    code = REFUSALS[kind]
    if call.version < FIRST_WITH_MANY_KEYS:
        if client.may(AclOperation.DESCRIBE, kind, request.key):
            yield from passed(handler, call, request)
        else:
            call.respond(
                FindCoordinatorResponse(
                    error_code=int(code), error_message=code.meaning, node_id=-1, port=-1
                )
            )
        return
    keys = request.coordinator_keys
    refused = yield from client.refused(AclOperation.DESCRIBE, kind, keys)
    rows = yield from rows_of(
        refused,
        lambda key: FindCoordinatorResponse.Coordinator(
            key=key, error_code=int(code), error_message=code.meaning, node_id=-1, port=-1
        ),
    )
    request.coordinator_keys = [key for key in keys if key not in refused]
    call.amend = with_rows("coordinators", rows)
    yield from passed(handler, call, request)


def itself(name: str) -> str:
    """The name itself: for items that are names."""
    return name


_DESCRIBED_GROUPS: ByItem[str, DescribeGroupsRequest, DescribeGroupsResponse] = ByItem(
    operation=AclOperation.DESCRIBE,
    kind=_GROUP,
    items="groups",
    name=itself,
    rows="groups",
    row=row_of(
        lambda group, code: DescribeGroupsResponse.DescribedGroup(error_code=code, group_id=group)
    ),
    answer_class=DescribeGroupsResponse,
)


def describe_groups(asked: Asked[DescribeGroupsRequest, DescribeGroupsResponse]) -> Steps:
    client, _call, request, handler = asked
    wants_operations = request.include_authorized_operations

    def described(of: ApiCall[DescribeGroupsResponse], asked: DescribeGroupsRequest) -> Steps:
        refusals = of.amend

        def amend(answer: DescribeGroupsResponse) -> Building[DescribeGroupsResponse]:
            for group in answer.groups if wants_operations else ():
                yield None
                if not group.error_code:
                    group.authorized_operations = client.operations(_GROUP, group.group_id)
            if refusals is not None:
                answer = yield from refusals(answer)
            return answer

        of.amend = amend
        yield from passed(handler, of, asked)

    yield from _DESCRIBED_GROUPS(asked._replace(handler=described))


delete_groups: ByItem[str, DeleteGroupsRequest, DeleteGroupsResponse] = ByItem(
    operation=AclOperation.DELETE,
    kind=_GROUP,
    items="groups_names",
    name=itself,
    rows="results",
    row=row_of(
        lambda group, code: DeleteGroupsResponse.DeletableGroupResult(
            group_id=group, error_code=code
        )
    ),
    answer_class=DeleteGroupsResponse,
)


def list_groups(asked: Asked[ListGroupsRequest, ListGroupsResponse]) -> Steps:
    """Show all groups to clients with the right to describe the cluster, to other clients the
    groups that they may describe."""
    client, call, request, handler = asked
    if not client.may_unlogged(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        call.amend = only(
            "groups",
            lambda group: client.may_unlogged(AclOperation.DESCRIBE, _GROUP, group.group_id),
        )
    yield from passed(handler, call, request)
