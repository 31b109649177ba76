"""What those who look after users and their quotas have to ask for."""

from typing import Any

from storage_engine.broker.guards.shares import Building, briefly, of_cluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_types import AclOperation
from storage_engine.protocol.messages.alter_client_quotas import AlterClientQuotasResponse
from storage_engine.protocol.messages.alter_user_scram_credentials import (
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


def _changes_refused(request: Any, code: int) -> Building:
    row = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    names = dict.fromkeys(item.name for item in (*request.deletions, *request.upsertions))
    rows = []
    for name in names:
        rows.append(row(user=name, error_code=code, error_message=_DENIED.meaning))
        yield None
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


def _quotas_refused(request: Any, code: int) -> Building:
    row = AlterClientQuotasResponse.EntryData
    rows = []
    for entry in request.entries:
        entity = []
        for part in entry.entity:
            yield None
            entity.append(
                row.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            )
        rows.append(row(error_code=code, error_message=_DENIED.meaning, entity=entity))
        yield None
    return AlterClientQuotasResponse(entries=rows)


alter_quotas = of_cluster(AclOperation.ALTER_CONFIGS, _quotas_refused)
