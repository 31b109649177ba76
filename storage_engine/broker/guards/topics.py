"""The rights to describe, create and delete topics.

A topic that the client may not describe is answered alike whether it exists or not.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from storage_engine.broker.guards.client import Asked, RequestClient, Right, passed
from storage_engine.broker.guards.groups import itself
from storage_engine.broker.guards.shares import (
    Building,
    ByItem,
    row_of,
    rows_of,
    with_rows,
)
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import CLUSTER_NAME, AclOperation, ResourceType
from storage_engine.protocol.apis.describe_schemas import (
    DescribedSchema,
    DescribeSchemasRequest,
    DescribeSchemasResponse,
)
from storage_engine.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from storage_engine.protocol.apis.wire import NO_TOPIC_ID
from storage_engine.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from storage_engine.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from storage_engine.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from storage_engine.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from storage_engine.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

_TOPIC, _CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
_Described = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_UNKNOWN = -1


def metadata(asked: Asked[MetadataRequest, MetadataResponse]) -> None:
    """The right to create a topic is checked by the handler (`may_create`), when the topic is to be
    created."""
    client, call = asked.client, asked.call
    client.parts.when_known(lambda: call.run(_metadata(asked)))


def _metadata(asked: Asked[MetadataRequest, MetadataResponse]) -> Steps:
    client, call, request, handler = asked
    rows: list[MetadataTopic] = []
    is_all = request.topics is None
    wanted = sorted(client.parts.metadata.topics()) if request.topics is None else request.topics
    shown: list[str] = []
    refused: dict[str, None] = {}
    for name in wanted:
        if client.may_unlogged(AclOperation.DESCRIBE, _TOPIC, name):
            shown.append(name)
        elif not is_all and name not in refused:
            refused[name] = None
            rows.append(MetadataTopic(topic=name, partitions=(), error_code=int(_DENIED)))
        yield None
    ids: list[UUID] = []
    for topic_id in request.topic_ids:
        found = client.topic_name(topic_id)
        if found is None or client.may_unlogged(AclOperation.DESCRIBE, _TOPIC, found):
            ids.append(topic_id)
        else:
            refused[found] = None
            rows.append(
                MetadataTopic(
                    topic=None,
                    partitions=(),
                    error_code=int(ErrorCode.UNKNOWN_TOPIC_ID),
                    topic_id=topic_id,
                )
            )
        yield None
    client.log_refused(AclOperation.DESCRIBE, _TOPIC, refused)

    def amend(answer: MetadataResponse) -> Building[MetadataResponse]:
        topics = yield from _topics_shown(client, request, answer.topics, is_all=is_all)
        answer = replace(answer, topics=[*topics, *rows])
        if request.include_cluster_authorized_operations:
            operations = client.operations(_CLUSTER, CLUSTER_NAME)
            answer = replace(answer, cluster_authorized_operations=operations)
        return answer

    call.amend = amend
    allow = request.allow_auto_topic_creation and not is_all
    changed = replace(request, topics=shown, topic_ids=ids, allow_auto_topic_creation=allow)
    yield from passed(handler, call, changed)


def _topics_shown(
    client: RequestClient,
    request: MetadataRequest,
    topics: Sequence[MetadataTopic],
    *,
    is_all: bool,
) -> Building[list[MetadataTopic]]:
    """Add the authorized operations; for all topics, leave out those deleted meanwhile."""
    shown = []
    for topic in topics:
        yield None
        if is_all and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if request.include_topic_authorized_operations and topic.topic and not topic.error_code:
            operations = client.operations(_TOPIC, topic.topic)
            topic = replace(topic, authorized_operations=operations)
        shown.append(topic)
    return shown


def describe_topic_partitions(
    asked: Asked[DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse],
) -> None:
    client, call = asked.client, asked.call
    client.parts.when_known(lambda: call.run(_describe_topic_partitions(asked)))


def _describe_topic_partitions(
    asked: Asked[DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse],
) -> Steps:
    client, call, request, handler = asked
    is_all = not request.topics
    names = sorted(client.parts.metadata.topics()) if is_all else [t.name for t in request.topics]
    shown: dict[str, None] = {}
    refused: dict[str, None] = {}
    for name in names:
        is_shown = client.may_unlogged(AclOperation.DESCRIBE, _TOPIC, name)
        (shown if is_shown else refused)[name] = None
        yield None
    if is_all:
        refused = {}
    client.log_refused(AclOperation.DESCRIBE, _TOPIC, refused)
    rows = yield from rows_of(refused, lambda name: _Described(name=name, error_code=int(_DENIED)))
    if not shown:
        call.respond(DescribeTopicPartitionsResponse(topics=rows, next_cursor=None))
        return

    def amend(answer: DescribeTopicPartitionsResponse) -> Building[DescribeTopicPartitionsResponse]:
        for topic in answer.topics:
            if topic.name and not topic.error_code:
                topic.topic_authorized_operations = client.operations(_TOPIC, topic.name)
            yield None
        answer.topics = [*answer.topics, *rows]
        return answer

    call.amend = amend
    row = DescribeTopicPartitionsRequest.TopicRequest
    request.topics = yield from rows_of(shown, lambda name: row(name=name))
    yield from passed(handler, call, request)


def describe_cluster(asked: Asked[DescribeClusterRequest, DescribeClusterResponse]) -> Steps:
    """All clients may describe the brokers, as with Metadata."""
    client, call, request, handler = asked

    def amend(answer: DescribeClusterResponse) -> Building[DescribeClusterResponse]:
        yield from ()
        if not answer.error_code:
            answer.cluster_authorized_operations = client.operations(_CLUSTER, CLUSTER_NAME)
        return answer

    if request.include_cluster_authorized_operations:
        call.amend = amend
    yield from passed(handler, call, request)


_CREATE_ANY = Right(AclOperation.CREATE, _CLUSTER, CLUSTER_NAME)
_Created = CreateTopicsResponse.CreatableTopicResult


def _uncreated(topic: CreateTopicsRequest.CreatableTopic, code: int) -> _Created:
    return _Created(
        name=topic.name, error_code=code, error_message=ErrorCode.of(code).meaning, configs=None
    )


_CREATED_BY_NAME = ByItem[
    CreateTopicsRequest.CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
](
    operation=AclOperation.CREATE,
    row=row_of(_uncreated),
    answer_class=CreateTopicsResponse,
)


def create_topics(asked: Asked[CreateTopicsRequest, CreateTopicsResponse]) -> Steps:
    """The right to create topics in the cluster is a right to create every topic."""
    client, call, request, handler = asked
    client.grant(each=AclOperation.CREATE, instead=_CREATE_ANY)

    def created(of: ApiCall[CreateTopicsResponse], asked: CreateTopicsRequest) -> Steps:
        refusals = of.amend

        def amend(answer: CreateTopicsResponse) -> Building[CreateTopicsResponse]:
            yield from _hide_settings(client, answer.topics)
            if refusals is not None:
                answer = yield from refusals(answer)
            return answer

        of.amend = amend
        yield from passed(handler, of, asked)

    if client.may_unlogged(AclOperation.CREATE, _CLUSTER, CLUSTER_NAME):
        yield from created(call, request)
    else:
        yield from _CREATED_BY_NAME(asked._replace(handler=created))


def _hide_settings(client: RequestClient, topics: Sequence[_Created]) -> Building[None]:
    """Hide a new topic's settings from clients without the right to describe them (KIP-525)."""
    for topic in topics:
        yield None
        if not topic.error_code and not client.may_unlogged(
            AclOperation.DESCRIBE_CONFIGS, _TOPIC, topic.name
        ):
            topic.num_partitions = topic.replication_factor = _UNKNOWN
            topic.configs = []
            topic.topic_config_error_code = int(_DENIED)


create_partitions = ByItem[
    CreatePartitionsRequest.CreatePartitionsTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
](
    operation=AclOperation.ALTER,
    rows="results",
    row=row_of(
        lambda topic, code: CreatePartitionsResponse.CreatePartitionsTopicResult(
            name=topic.name, error_code=code, error_message=ErrorCode.of(code).meaning
        )
    ),
    answer_class=CreatePartitionsResponse,
)

describe_schemas = ByItem[str, DescribeSchemasRequest, DescribeSchemasResponse](
    operation=AclOperation.DESCRIBE,
    name=itself,
    row=row_of(
        lambda topic, code: DescribedSchema(
            topic=topic, error_code=code, error_message=ErrorCode.of(code).meaning
        )
    ),
    answer_class=DescribeSchemasResponse,
)

FIRST_DELETE_WITH_IDS = 6
_Deleted = DeleteTopicsResponse.DeletableTopicResult


def delete_topics(asked: Asked[DeleteTopicsRequest, DeleteTopicsResponse]) -> Steps:
    client, call, request, handler = asked
    client.grant(each=AclOperation.DELETE)
    if call.version < FIRST_DELETE_WITH_IDS:
        names = request.topic_names
        refused = yield from client.refused(AclOperation.DELETE, _TOPIC, names)
        rows = yield from rows_of(refused, lambda name: _undeleted(name, NO_TOPIC_ID))
        request.topic_names = [name for name in names if name not in refused]
    else:
        request.topics, rows = yield from _split_deletions(client, request.topics)
    call.amend = with_rows("responses", rows)
    yield from passed(handler, call, request)


def _split_deletions(
    client: RequestClient, topics: Sequence[DeleteTopicsRequest.DeleteTopicState]
) -> Building[tuple[list[DeleteTopicsRequest.DeleteTopicState], list[_Deleted]]]:
    """Return (permitted deletions, rows of the others). The name of a topic that was named by its
    id is shown only to a client that may describe it."""
    kept, rows = [], []
    refused: dict[str, None] = {}
    for topic in topics:
        yield None
        name = topic.name
        if name is None:
            name = client.topic_name(topic.topic_id)
        if name is None or client.may_unlogged(AclOperation.DELETE, _TOPIC, name):
            kept.append(topic)
            continue
        refused[name] = None
        is_shown = topic.name is not None or client.may_unlogged(
            AclOperation.DESCRIBE, _TOPIC, name
        )
        rows.append(_undeleted(name if is_shown else None, topic.topic_id))
    client.log_refused(AclOperation.DELETE, _TOPIC, refused)
    return kept, rows


def _undeleted(name: str | None, topic_id: UUID) -> _Deleted:
    return _Deleted(
        name=name,
        topic_id=topic_id,
        error_code=int(_DENIED),
        error_message=_DENIED.meaning,
    )
