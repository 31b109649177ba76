"""What members of groups, and those who look after groups, have to ask for."""

from collections.abc import Callable, Iterable
from typing import Any

from storage_engine.broker.guards.client import REFUSALS, RequestClient, Right, passed
from storage_engine.broker.guards.shares import (
    Building,
    ByItem,
    TopicRows,
    briefly,
    first_asks,
    only,
    row_of,
    whole,
    with_rows,
)
from storage_engine.broker.handlers.api_call import AnyHandler, ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.security.acl_types import CLUSTER_NAME, AclOperation, ResourceType
from storage_engine.protocol.messages.delete_groups import DeleteGroupsResponse
from storage_engine.protocol.messages.describe_groups import DescribeGroupsResponse
from storage_engine.protocol.messages.find_coordinator import FindCoordinatorResponse
from storage_engine.protocol.messages.heartbeat import HeartbeatResponse
from storage_engine.protocol.messages.join_group import JoinGroupResponse
from storage_engine.protocol.messages.leave_group import LeaveGroupResponse
from storage_engine.protocol.messages.offset_commit import OffsetCommitResponse
from storage_engine.protocol.messages.offset_delete import OffsetDeleteResponse
from storage_engine.protocol.messages.offset_fetch import OffsetFetchResponse
from storage_engine.protocol.messages.sync_group import SyncGroupResponse

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_NO_OFFSET = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}


def of_group(operation: AclOperation) -> Callable[[Any], Iterable[Right]]:
    """The right to the group that the request names."""
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
_COMMIT_ROWS = TopicRows(
    topic_class=_Committed, partition_class=_Committed.OffsetCommitResponsePartition
)


def _commit_refused(request: Any, code: int) -> Building:
    rows = yield from _COMMIT_ROWS.all_of(request.topics, code)
    return OffsetCommitResponse(topics=rows)


offset_commit = first_asks(
    _READS,
    _commit_refused,
    ByItem(
        operation=AclOperation.READ,
        kind=_TOPIC,
        items="topics",
        name="name",
        rows="topics",
        row=_COMMIT_ROWS,
        answer_class=OffsetCommitResponse,
    ),
)

_Deleted = OffsetDeleteResponse.OffsetDeleteResponseTopic

offset_delete = first_asks(
    of_group(AclOperation.DELETE),
    briefly(lambda code: OffsetDeleteResponse(error_code=code, topics=[])),
    ByItem(
        operation=AclOperation.READ,
        kind=_TOPIC,
        items="topics",
        name="name",
        rows="topics",
        row=TopicRows(topic_class=_Deleted, partition_class=_Deleted.OffsetDeleteResponsePartition),
        answer_class=OffsetDeleteResponse,
    ),
)

_FetchedTopic = OffsetFetchResponse.OffsetFetchResponseTopic
_FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup
_FetchedGroupTopic = _FetchedGroup.OffsetFetchResponseTopics
_FETCH_ROWS = TopicRows(
    topic_class=_FetchedTopic,
    partition_class=_FetchedTopic.OffsetFetchResponsePartition,
    extra=_NO_OFFSET,
    asked_partitions="partition_indexes",
    asked_index=None,
)
_GROUP_FETCH_ROWS = TopicRows(
    topic_class=_FetchedGroupTopic,
    partition_class=_FetchedGroupTopic.OffsetFetchResponsePartitions,
    extra=_NO_OFFSET,
    asked_partitions="partition_indexes",
    asked_index=None,
)

FIRST_OFFSET_FETCH_WITH_GROUPS = 8
FIRST_OFFSET_FETCH_WITH_ERROR = 2


def offset_fetch(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
    if call.version >= FIRST_OFFSET_FETCH_WITH_GROUPS:
        yield from _fetch_of_groups(client, call, request, handler)
        return
    client.grant((Right(AclOperation.DESCRIBE, _GROUP, request.group_id),))
    if not client.may(AclOperation.DESCRIBE, _GROUP, request.group_id):
        code = int(REFUSALS[_GROUP])
        rows: list[Any] = []
        if call.version < FIRST_OFFSET_FETCH_WITH_ERROR:
            rows = yield from _FETCH_ROWS.all_of(request.topics, code)
        call.respond(OffsetFetchResponse(topics=rows, error_code=code))
        return
    kept, rows = yield from _split_topics(client, request.topics, _FETCH_ROWS)
    request.topics = kept
    yield from _answered_with(client, call, request, handler, {request.group_id: rows})


def _fetch_of_groups(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
    names = [group.group_id for group in request.groups]
    client.grant(each=AclOperation.DESCRIBE)
    refused = yield from client.refused(AclOperation.DESCRIBE, _GROUP, names)
    denied = []
    for name in refused:
        denied.append(_FetchedGroup(group_id=name, topics=[], error_code=int(REFUSALS[_GROUP])))
        yield None
    request.groups = [group for group in request.groups if group.group_id not in refused]
    rows: dict[str, list[Any]] = {}
    for group in request.groups:
        group.topics, rows[group.group_id] = yield from _split_topics(
            client, group.topics, _GROUP_FETCH_ROWS
        )
    yield from _answered_with(client, call, request, handler, rows, denied)


def _split_topics(client: RequestClient, topics: Any, refusals: TopicRows) -> Building:
    """(the topics that may be asked for, the rows of the others); None stays None."""
    if topics is None:
        return None, []
    names = [topic.name for topic in topics]
    refused = yield from client.refused(AclOperation.DESCRIBE, _TOPIC, names)
    kept, rows = [], []
    for topic in topics:
        if topic.name in refused:
            rows.append((yield from refusals(topic, int(REFUSALS[_TOPIC]))))
        else:
            kept.append(topic)
    return kept, rows


def _answered_with(
    client: RequestClient,
    call: ApiCall[Any],
    request: Any,
    handler: AnyHandler,
    rows: dict[str, list[Any]],
    denied: Iterable[Any] = (),
) -> Steps:
    """Adds refusals; of a question for all topics it leaves out what may not be described."""

    def shown(topics: Iterable[Any], group_id: str) -> Building:
        found = []
        for topic in topics:
            if client.may_quietly(AclOperation.DESCRIBE, _TOPIC, topic.name):
                found.append(topic)
            yield None
        return [*found, *rows.get(group_id, ())]

    def amend(answer: Any) -> Building:
        if call.version < FIRST_OFFSET_FETCH_WITH_GROUPS:
            if not answer.error_code:
                answer.topics = yield from shown(answer.topics, request.group_id)
            return answer
        for group in answer.groups:
            if not group.error_code:
                group.topics = yield from shown(group.topics, group.group_id)
        answer.groups = [*answer.groups, *denied]
        return answer

    call.amend = amend
    yield from passed(handler, call, request)


FIRST_WITH_MANY_KEYS = 4
_KINDS_OF_KEYS = {0: _GROUP, 1: ResourceType.TRANSACTIONAL_ID}


def find_coordinator(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
    kind = _KINDS_OF_KEYS.get(request.key_type)
    if kind is None:
        # There are no others: the handler says so.
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
    rows = []
    for key in refused:
        rows.append(
            FindCoordinatorResponse.Coordinator(
                key=key,
                error_code=int(code),
                error_message=code.meaning,
                node_id=-1,
                host="",
                port=-1,
            )
        )
        yield None
    request.coordinator_keys = [key for key in keys if key not in refused]
    call.amend = with_rows("coordinators", rows)
    yield from passed(handler, call, request)


_Described = DescribeGroupsResponse.DescribedGroup

_DESCRIBED_GROUPS = ByItem(
    operation=AclOperation.DESCRIBE,
    kind=_GROUP,
    items="groups",
    name=None,
    rows="groups",
    row=row_of(
        lambda group, code: _Described(
            error_code=code,
            group_id=group,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
    ),
    answer_class=DescribeGroupsResponse,
)


def describe_groups(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
    wants_operations = request.include_authorized_operations

    def described(of: ApiCall[Any], asked: Any) -> Steps:
        refusals = of.amend

        def amend(answer: Any) -> Building:
            for group in answer.groups if wants_operations else ():
                yield None
                if not group.error_code:
                    group.authorized_operations = client.operations(_GROUP, group.group_id)
            if refusals is not None:
                answer = yield from refusals(answer)
            return answer

        of.amend = amend
        yield from passed(handler, of, asked)

    yield from _DESCRIBED_GROUPS(client, call, request, described)


delete_groups = ByItem(
    operation=AclOperation.DELETE,
    kind=_GROUP,
    items="groups_names",
    name=None,
    rows="results",
    row=row_of(
        lambda group, code: DeleteGroupsResponse.DeletableGroupResult(
            group_id=group, error_code=code
        )
    ),
    answer_class=DeleteGroupsResponse,
)


def list_groups(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
    """Shows all groups to whoever may describe the cluster, to others those that they may
    describe."""
    if not client.may_quietly(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        call.amend = only(
            "groups",
            lambda group: client.may_quietly(AclOperation.DESCRIBE, _GROUP, group.group_id),
        )
    yield from passed(handler, call, request)
