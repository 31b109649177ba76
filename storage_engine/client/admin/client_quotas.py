"""Quotas of users, client ids and addresses. Source: KIP-546."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from storage_engine.client.admin.requests import error_of, first_error
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ConfigError
from storage_engine.core.quotas import QuotaEntity
from storage_engine.protocol.messages.alter_client_quotas import API as ALTER_CLIENT_QUOTAS
from storage_engine.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from storage_engine.protocol.messages.describe_client_quotas import API as DESCRIBE_CLIENT_QUOTAS
from storage_engine.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuota:
    """The quotas of one entity."""

    entity: QuotaEntity
    values: Mapping[str, float]
    """The quotas by Kafka's names, such as producer_byte_rate."""


def describe_client_quotas(cluster: Cluster) -> list[ClientQuota]:
    """All quotas of users, client ids and addresses, in the order of their entities."""
    message = DescribeClientQuotasRequest(components=[], strict=False)
    answer = cluster.ask_any(DESCRIBE_CLIENT_QUOTAS, message, error_of=error_of)
    return [
        ClientQuota(
            entity=QuotaEntity.of_request(
                (part.entity_type, part.entity_name) for part in entry.entity
            ),
            values={each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or ()
    ]


def alter_client_quotas(
    cluster: Cluster,
    entity: QuotaEntity,
    values: Mapping[str, float],
    *,
    remove: Iterable[str] = (),
) -> None:
    """Set some quotas of a user, a client id, both or an address, and remove those of `remove`; the
    others stay as they are."""
    row = AlterClientQuotasRequest.EntryData
    ops = [row.OpData(key=key, value=value, remove=False) for key, value in values.items()]
    ops += [row.OpData(key=key, value=0.0, remove=True) for key in remove]
    if not ops:
        raise ConfigError("no quota is given; give quotas to set, or names of quotas to remove")
    parts = [row.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts]
    message = AlterClientQuotasRequest(entries=[row(entity=parts, ops=ops)], validate_only=False)
    # To set them twice is as good as once.
    cluster.ask_any(
        ALTER_CLIENT_QUOTAS, message, error_of=lambda answer: first_error(answer.entries)
    )
