"""What those who look after users and their quotas have to ask for."""

from storage_engine.broker.guards.shares import Building, briefly, of_cluster, rows_of
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import AclOperation
from storage_engine.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from storage_engine.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from storage_engine.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from storage_engine.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
)

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

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
