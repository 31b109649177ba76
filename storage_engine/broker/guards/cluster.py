"""The rights to administer the cluster, and to send what only brokers may send.

The rights to administer users and their quotas.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar

from storage_engine.broker.guards.client import REFUSALS, Asked, RequestClient, passed
from storage_engine.broker.guards.shares import (
    Building,
    Row,
    briefly,
    each_refused,
    of_cluster,
    rows_of,
    with_rows,
)
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import AclOperation, ResourceType
from storage_engine.protocol.apis.controlled_shutdown import ControlledShutdownResponse
from storage_engine.protocol.apis.leader_and_isr import LeaderAndIsrResponse
from storage_engine.protocol.apis.stop_replica import StopReplicaResponse
from storage_engine.protocol.apis.update_metadata import UpdateMetadataResponse
from storage_engine.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from storage_engine.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from storage_engine.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
)
from storage_engine.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from storage_engine.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from storage_engine.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from storage_engine.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from storage_engine.protocol.messages.describe_acls import DescribeAclsResponse
from storage_engine.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from storage_engine.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from storage_engine.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from storage_engine.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
)
from storage_engine.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from storage_engine.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from storage_engine.protocol.messages.list_config_resources import ListConfigResourcesResponse
from storage_engine.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
)
from storage_engine.protocol.messages.update_features import UpdateFeaturesResponse

_GROUP, _TOPIC, _CLUSTER = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.CLUSTER
_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

_NAMED_BY = {2: _TOPIC, 32: _GROUP}
"""The resources whose settings are theirs, by the types of settings' resources; all others belong
to the cluster."""


class SettingsOf(Protocol):
    """An item of a request about the settings of one resource."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


Resource = TypeVar("Resource", bound=SettingsOf)


def _settings_refused(
    client: RequestClient,
    resources: Sequence[Resource],
    operation: AclOperation,
    row: Callable[..., Row],
) -> Building[tuple[list[Resource], list[Row]]]:
    """Return (permitted resources, rows of the refused ones); each is checked by itself."""
    client.grant(each=operation)
    refused = {}
    for kind in (_TOPIC, _GROUP):
        names = [item.resource_name for item in resources if _kind_of(item) is kind]
        refused[kind] = yield from client.refused(operation, kind, names)
    asks_cluster = any(_kind_of(item) is _CLUSTER for item in resources)
    is_cluster_allowed = asks_cluster and client.may_to_cluster(operation)
    kept, rows = [], []
    for item in resources:
        yield None
        kind = _kind_of(item)
        is_allowed = is_cluster_allowed
        if kind is not _CLUSTER:
            is_allowed = item.resource_name not in refused[kind]
        if is_allowed:
            kept.append(item)
        else:
            code = REFUSALS[kind]
            rows.append(
                row(
                    error_code=int(code),
                    error_message=code.meaning,
                    resource_type=item.resource_type,
                    resource_name=item.resource_name,
                )
            )
    return kept, rows


def _kind_of(item: SettingsOf) -> ResourceType:
    return _NAMED_BY.get(item.resource_type, _CLUSTER)


def describe_configs(asked: Asked[DescribeConfigsRequest, DescribeConfigsResponse]) -> Steps:
    client, call, request, handler = asked
    request.resources, rows = yield from _settings_refused(
        client,
        request.resources,
        AclOperation.DESCRIBE_CONFIGS,
        DescribeConfigsResponse.DescribeConfigsResult,
    )
    if rows:
        call.amend = with_rows("results", rows)
    yield from passed(handler, call, request)


def alter_configs(asked: Asked[AlterConfigsRequest, AlterConfigsResponse]) -> Steps:
    client, call, request, handler = asked
    request.resources, rows = yield from _settings_refused(
        client,
        request.resources,
        AclOperation.ALTER_CONFIGS,
        AlterConfigsResponse.AlterConfigsResourceResponse,
    )
    if rows:
        call.amend = with_rows("responses", rows)
    yield from passed(handler, call, request)


def incremental_alter_configs(
    asked: Asked[IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse],
) -> Steps:
    client, call, request, handler = asked
    request.resources, rows = yield from _settings_refused(
        client,
        request.resources,
        AclOperation.ALTER_CONFIGS,
        IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
    )
    if rows:
        call.amend = with_rows("responses", rows)
    yield from passed(handler, call, request)


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


def _unmoved(
    topic: AlterReplicaLogDirsRequest.AlterReplicaLogDir.AlterReplicaLogDirTopic, code: int
) -> Building[_Moved]:
    row = _Moved.AlterReplicaLogDirPartitionResult
    rows = yield from rows_of(
        topic.partitions, lambda number: row(partition_index=number, error_code=code)
    )
    return _Moved(topic_name=topic.name, partitions=rows)


def _moves_refused(
    request: AlterReplicaLogDirsRequest, code: int
) -> Building[AlterReplicaLogDirsResponse]:
    rows = []
    for log_dir in request.dirs:
        rows += yield from each_refused(log_dir.topics, _unmoved, code)
    return AlterReplicaLogDirsResponse(results=rows)


alter_replica_log_dirs = of_cluster(AclOperation.ALTER, _moves_refused)
describe_log_dirs = of_cluster(
    AclOperation.DESCRIBE,
    briefly(lambda code: DescribeLogDirsResponse(error_code=code, results=[])),
)

_Elected = ElectLeadersResponse.ReplicaElectionResult


def _unelected(topic: ElectLeadersRequest.TopicPartitions, code: int) -> Building[_Elected]:
    row = _Elected.PartitionResult
    rows = yield from rows_of(
        topic.partitions,
        lambda number: row(partition_id=number, error_code=code, error_message=_DENIED.meaning),
    )
    return _Elected(topic=topic.topic, partition_result=rows)


def _elections_refused(request: ElectLeadersRequest, code: int) -> Building[ElectLeadersResponse]:
    rows = yield from each_refused(request.topic_partitions, _unelected, code)
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


def _creations_refused(request: CreateAclsRequest, code: int) -> Building[CreateAclsResponse]:
    row = CreateAclsResponse.AclCreationResult
    rows = yield from rows_of(
        request.creations, lambda _: row(error_code=code, error_message=_DENIED.meaning)
    )
    return CreateAclsResponse(results=rows)


def _deletions_refused(request: DeleteAclsRequest, code: int) -> Building[DeleteAclsResponse]:
    row = DeleteAclsResponse.DeleteAclsFilterResult
    rows = yield from rows_of(
        request.filters, lambda _: row(error_code=code, error_message=_DENIED.meaning)
    )
    return DeleteAclsResponse(filter_results=rows)


create_acls = of_cluster(AclOperation.ALTER, _creations_refused)
delete_acls = of_cluster(AclOperation.ALTER, _deletions_refused)

Refused = (
    LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse | ControlledShutdownResponse
)

BROKERS_ONLY: Mapping[int, Callable[[int], Refused]] = MappingProxyType(
    {
        4: lambda code: LeaderAndIsrResponse(error_code=code),
        5: lambda code: StopReplicaResponse(error_code=code),
        6: lambda code: UpdateMetadataResponse(error_code=code),
        7: lambda code: ControlledShutdownResponse(error_code=code),
    }
)
"""The APIs for brokers alone, with the answer to other clients: it is given without decoding the
request."""

leader_and_isr, stop_replica, update_metadata, controlled_shutdown = (
    of_cluster(AclOperation.CLUSTER_ACTION, briefly(refusal)) for refusal in BROKERS_ONLY.values()
)

describe_scram = of_cluster(
    AclOperation.DESCRIBE,
    briefly(
        lambda code: DescribeUserScramCredentialsResponse(
            error_code=code, error_message=_DENIED.meaning, results=[]
        )
    ),
)


def _changes_refused(
    request: AlterUserScramCredentialsRequest, code: int
) -> Building[AlterUserScramCredentialsResponse]:
    row = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    deleted = [item.name for item in request.deletions]
    names = dict.fromkeys(deleted + [item.name for item in request.upsertions])
    rows = yield from rows_of(
        names, lambda name: row(user=name, error_code=code, error_message=_DENIED.meaning)
    )
    return AlterUserScramCredentialsResponse(results=rows)


alter_scram = of_cluster(AclOperation.ALTER, _changes_refused)

describe_quotas = of_cluster(
    AclOperation.DESCRIBE_CONFIGS,
    briefly(
        lambda code: DescribeClientQuotasResponse(
            error_code=code, error_message=_DENIED.meaning, entries=None
        )
    ),
)


def _quotas_refused(
    request: AlterClientQuotasRequest, code: int
) -> Building[AlterClientQuotasResponse]:
    row = AlterClientQuotasResponse.EntryData
    rows = []
    for entry in request.entries:
        entity = yield from rows_of(
            entry.entity,
            lambda part: row.EntityData(entity_type=part.entity_type, entity_name=part.entity_name),
        )
        rows.append(row(error_code=code, error_message=_DENIED.meaning, entity=entity))
        yield None
    return AlterClientQuotasResponse(entries=rows)


alter_quotas = of_cluster(AclOperation.ALTER_CONFIGS, _quotas_refused)
