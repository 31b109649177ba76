"""What those who look after the cluster have to ask for, and what only brokers may send."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from storage_engine.broker.guards.client import REFUSALS, RequestClient, passed
from storage_engine.broker.guards.shares import (
    Building,
    TopicRows,
    briefly,
    of_cluster,
    with_rows,
)
from storage_engine.broker.handlers.api_call import AnyHandler, ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_types import AclOperation, ResourceType
from storage_engine.protocol.apis.controlled_shutdown import ControlledShutdownResponse
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrResponse
from storage_engine.protocol.apis.stop_replica import StopReplicaResponse
from storage_engine.protocol.apis.update_metadata import UpdateMetadataResponse
from storage_engine.protocol.messages.alter_configs import AlterConfigsResponse
from storage_engine.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
)
from storage_engine.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsResponse
from storage_engine.protocol.messages.create_acls import CreateAclsResponse
from storage_engine.protocol.messages.delete_acls import DeleteAclsResponse
from storage_engine.protocol.messages.describe_acls import DescribeAclsResponse
from storage_engine.protocol.messages.describe_configs import DescribeConfigsResponse
from storage_engine.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from storage_engine.protocol.messages.elect_leaders import ElectLeadersResponse
from storage_engine.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsResponse,
)
from storage_engine.protocol.messages.list_config_resources import ListConfigResourcesResponse
from storage_engine.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
)
from storage_engine.protocol.messages.update_features import UpdateFeaturesResponse

_TOPIC, _CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

TOPIC_SETTINGS = 2
"""The resource type of a topic's settings; all others belong to the cluster."""


def _guard_settings(
    client: RequestClient,
    call: ApiCall[Any],
    request: Any,
    handler: AnyHandler,
    *,
    operation: AclOperation,
    rows_name: str,
    row: Callable[..., Any],
) -> Steps:
    """Each resource is asked for by itself."""
    client.grant(each=operation)
    topics = [item.resource_name for item in request.resources if _is_topic(item)]
    refused = yield from client.refused(operation, _TOPIC, topics)
    is_cluster_allowed = len(topics) == len(request.resources) or client.may_to_cluster(operation)
    kept, rows = [], []
    for item in request.resources:
        yield None
        is_topic = _is_topic(item)
        if item.resource_name not in refused if is_topic else is_cluster_allowed:
            kept.append(item)
            continue
        code = REFUSALS[_TOPIC if is_topic else _CLUSTER]
        rows.append(
            row(
                error_code=int(code),
                error_message=code.meaning,
                resource_type=item.resource_type,
                resource_name=item.resource_name,
            )
        )
    request.resources = kept
    if rows:
        call.amend = with_rows(rows_name, rows)
    yield from passed(handler, call, request)


def _is_topic(item: Any) -> bool:
    return bool(item.resource_type == TOPIC_SETTINGS)


def describe_configs(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
    def row(**fields: Any) -> Any:
        return DescribeConfigsResponse.DescribeConfigsResult(configs=[], **fields)

    return _guard_settings(
        client,
        call,
        request,
        handler,
        operation=AclOperation.DESCRIBE_CONFIGS,
        rows_name="results",
        row=row,
    )


def alter_configs(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
    return _guard_settings(
        client,
        call,
        request,
        handler,
        operation=AclOperation.ALTER_CONFIGS,
        rows_name="responses",
        row=AlterConfigsResponse.AlterConfigsResourceResponse,
    )


def incremental_alter_configs(
    client: RequestClient, call: ApiCall[Any], request: Any, handler: AnyHandler
) -> Steps:
    return _guard_settings(
        client,
        call,
        request,
        handler,
        operation=AclOperation.ALTER_CONFIGS,
        rows_name="responses",
        row=IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
    )


list_config_resources = of_cluster(
    AclOperation.DESCRIBE_CONFIGS,
    briefly(lambda code: ListConfigResourcesResponse(error_code=code, config_resources=[])),
)
update_features = of_cluster(
    AclOperation.ALTER,
    briefly(
        lambda code: UpdateFeaturesResponse(
            error_code=code, error_message=_DENIED.meaning, results=[]
        )
    ),
)

_Moved = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_MOVED_ROWS = TopicRows(
    topic_class=_Moved,
    partition_class=_Moved.AlterReplicaLogDirPartitionResult,
    topic="topic_name",
    asked_index=None,
)


def _moves_refused(request: Any, code: int) -> Building:
    rows = []
    for folder in request.dirs:
        rows += yield from _MOVED_ROWS.all_of(folder.topics, code)
    return AlterReplicaLogDirsResponse(results=rows)


alter_replica_log_dirs = of_cluster(AclOperation.ALTER, _moves_refused)
describe_log_dirs = of_cluster(
    AclOperation.DESCRIBE,
    briefly(lambda code: DescribeLogDirsResponse(error_code=code, results=[])),
)

_Elected = ElectLeadersResponse.ReplicaElectionResult
_ELECTED_ROWS = TopicRows(
    topic_class=_Elected,
    partition_class=_Elected.PartitionResult,
    topic="topic",
    partitions="partition_result",
    index="partition_id",
    extra={"error_message": _DENIED.meaning},
    asked_topic="topic",
    asked_index=None,
)


def _elections_refused(request: Any, code: int) -> Building:
    rows = yield from _ELECTED_ROWS.all_of(request.topic_partitions, code)
    return ElectLeadersResponse(error_code=code, replica_election_results=rows)


elect_leaders = of_cluster(AclOperation.ALTER, _elections_refused)
alter_partition_reassignments = of_cluster(
    AclOperation.ALTER,
    briefly(
        lambda code: AlterPartitionReassignmentsResponse(
            error_code=code, error_message=_DENIED.meaning, responses=[]
        )
    ),
)
list_partition_reassignments = of_cluster(
    AclOperation.DESCRIBE,
    briefly(
        lambda code: ListPartitionReassignmentsResponse(
            error_code=code, error_message=_DENIED.meaning, topics=[]
        )
    ),
)

describe_acls = of_cluster(
    AclOperation.DESCRIBE,
    briefly(
        lambda code: DescribeAclsResponse(
            error_code=code, error_message=_DENIED.meaning, resources=[]
        )
    ),
)


def _creations_refused(request: Any, code: int) -> Building:
    row = CreateAclsResponse.AclCreationResult
    rows = []
    for _ in request.creations:
        rows.append(row(error_code=code, error_message=_DENIED.meaning))
        yield None
    return CreateAclsResponse(results=rows)


def _deletions_refused(request: Any, code: int) -> Building:
    row = DeleteAclsResponse.DeleteAclsFilterResult
    rows = []
    for _ in request.filters:
        rows.append(row(error_code=code, error_message=_DENIED.meaning, matching_acls=[]))
        yield None
    return DeleteAclsResponse(filter_results=rows)


create_acls = of_cluster(AclOperation.ALTER, _creations_refused)
delete_acls = of_cluster(AclOperation.ALTER, _deletions_refused)

BROKERS_ONLY: Mapping[int, Callable[[int], Any]] = MappingProxyType(
    {
        4: lambda code: LeaderAndIsrResponse(error_code=code),
        5: lambda code: StopReplicaResponse(error_code=code),
        6: lambda code: UpdateMetadataResponse(error_code=code),
        7: lambda code: ControlledShutdownResponse(error_code=code),
    }
)
"""The APIs that only brokers may send, with the answer to everybody else: it is given without a
look at the request."""

leader_and_isr, stop_replica, update_metadata, controlled_shutdown = (
    of_cluster(AclOperation.CLUSTER_ACTION, briefly(refusal)) for refusal in BROKERS_ONLY.values()
)
