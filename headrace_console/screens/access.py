"""Users, access rules and quotas, as far as the requesting user may see them."""

from collections.abc import Callable
from typing import TypeVar

from headrace_console.paging import Page
from headrace_console.problem import ConsoleError
from storage_engine.client.admin.access_rules import describe_rules
from storage_engine.client.admin.client_quotas import ClientQuota, describe_client_quotas
from storage_engine.client.admin.scram_users import describe_users
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.quotas import DEFAULT
from storage_engine.core.security.acl_rules import AclBinding
from storage_engine.core.security.scram_credential import ScramMechanism
from storage_engine.tools.document import Document

Found = TypeVar("Found")

_NO_RULES = (
    "this cluster has no access rules: every client may do everything (authorizer.class.name is "
    "not set)"
)


def _asked(ask: Callable[[], Found], otherwise: str) -> Found:
    try:
        return ask()
    except KafkaError as error:
        if error.code in (ErrorCode.SECURITY_DISABLED, ErrorCode.UNSUPPORTED_VERSION):
            raise ConsoleError("not_here", otherwise) from None
        raise


def user_list(cluster: Cluster, page: Page, now_ms: int) -> Document:
    """Return a page of users that log in by SCRAM."""
    users = _asked(lambda: describe_users(cluster), "this cluster does not list users")
    paged = page.of(
        list(users.items()),
        name=lambda row: row[0],
        keys={"user": lambda row: row[0]},
        default="user",
    )

    def row(user: tuple[str, dict[ScramMechanism, int]]) -> Document:
        name, credentials = user
        return {
            "user": name,
            "mechanisms": [f"{each.value} ({count})" for each, count in credentials.items()],
        }

    return paged.document(row, as_of_ms=now_ms)


def rule_list(cluster: Cluster, page: Page, now_ms: int) -> Document:
    """Return a page of access rules."""
    bindings = _asked(lambda: describe_rules(cluster), _NO_RULES)
    paged = page.of(
        bindings,
        name=lambda row: f"{row.rule.principal} {row.pattern}",
        keys={
            "principal": lambda row: (row.rule.principal, str(row.pattern)),
            "resource": lambda row: (str(row.pattern), row.rule.principal),
        },
        default="principal",
    )

    def row(binding: AclBinding) -> Document:
        return {
            "principal": binding.rule.principal,
            "host": binding.rule.host,
            "operation": str(binding.rule.operation),
            "permission": str(binding.rule.permission).upper(),
            "resource_type": str(binding.pattern.resource_type),
            "resource": binding.pattern.name,
            "pattern": str(binding.pattern.pattern_type).upper(),
        }

    return paged.document(row, as_of_ms=now_ms)


def quota_list(cluster: Cluster, page: Page, now_ms: int) -> Document:
    """Return a page of quotas."""
    quotas = _asked(lambda: describe_client_quotas(cluster), "this cluster does not list quotas")
    paged = page.of(
        quotas,
        name=lambda row: str(row.entity),
        keys={"entity": lambda row: str(row.entity)},
        default="entity",
    )

    def row(quota: ClientQuota) -> Document:
        return {
            "entity": {
                kind: None if name is None or name == DEFAULT else name
                for kind, name in quota.entity.parts
            },
            "values": dict(quota.values),
        }

    return paged.document(row, as_of_ms=now_ms)
