"""Access rules: lists, adds and removes them. Source: KIP-140, KIP-290."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.security.acl_rules import (
    AccessRule,
    AclBinding,
    AclFilter,
    ResourcePattern,
)
from storage_engine.core.security.acl_types import (
    ANY,
    MATCH,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.registry import api_of

_DESCRIBE, _CREATE, _DELETE = 29, 30, 31

EVERYTHING = AclFilter()

Member = TypeVar("Member")


def describe_rules(cluster: Cluster, wanted: AclFilter = EVERYTHING) -> list[AclBinding]:
    """The rules that the filter finds, in order."""
    spec, request = api_of(_DESCRIBE)
    answer = cluster.ask_any(spec, request(**_filter_fields(wanted, "_filter")))
    _check(answer.error_code, answer.error_message)
    found = [
        AclBinding(_pattern(resource), _rule(each))
        for resource in answer.resources
        for each in resource.acls
    ]
    return sorted(found)


def create_rules(cluster: Cluster, bindings: Iterable[AclBinding]) -> None:
    """Adds rules; one that is there already stays. KafkaError names the first that is refused."""
    spec, request = api_of(_CREATE)
    wanted = list(bindings)
    message = request(
        creations=[
            request.AclCreation(
                resource_type=int(pattern.resource_type),
                resource_name=pattern.name,
                resource_pattern_type=int(pattern.pattern_type),
                principal=rule.principal,
                host=rule.host,
                operation=int(rule.operation),
                permission_type=int(rule.permission),
            )
            for pattern, rule in wanted
        ]
    )
    _until_done(
        cluster,
        "CreateAcls",
        lambda: [
            (each.error_code, each.error_message) for each in cluster.ask_any(spec, message).results
        ],
    )


def delete_rules(cluster: Cluster, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """Removes the rules that the filters find, and returns them."""
    spec, request = api_of(_DELETE)
    message = request(
        filters=[request.DeleteAclsFilter(**_filter_fields(each, "_filter")) for each in filters]
    )
    removed: dict[AclBinding, None] = {}

    def ask() -> list[tuple[int, str | None]]:
        outcomes = []
        for result in cluster.ask_any(spec, message).filter_results:
            outcomes.append((result.error_code, result.error_message))
            for each in result.matching_acls:
                outcomes.append((each.error_code, each.error_message))
                if not each.error_code:
                    removed[AclBinding(_pattern(each), _rule(each))] = None
        return outcomes

    _until_done(cluster, "DeleteAcls", ask)
    return sorted(removed)


def _until_done(cluster: Cluster, what: str, ask: Any) -> None:
    """To add or remove a rule twice is as good as once."""
    retry = Retry(what, Deadline.after(cluster.deadline_ms))
    while True:
        failed = next(((code, text) for code, text in ask() if code), None)
        if failed is None:
            return
        code = ErrorCode.of(failed[0])
        retry.pause(KafkaError(failed[1] or code.meaning, code))


def _check(error_code: int, text: str | None) -> None:
    code = ErrorCode.of(error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(text or code.meaning, code)


def _pattern(row: Any) -> ResourcePattern:
    return ResourcePattern(
        _known(ResourceType.coded(row.resource_type), "resource type", row.resource_type),
        row.resource_name,
        _known(PatternType.coded(row.pattern_type), "pattern type", row.pattern_type),
    )


def _rule(row: Any) -> AccessRule:
    return AccessRule(
        row.principal,
        row.host,
        _known(AclOperation.coded(row.operation), "operation", row.operation),
        _known(AclPermission.coded(row.permission_type), "permission", row.permission_type),
    )


def _known(member: Member | None, what: str, code: int) -> Member:
    """KafkaError for what a newer broker has."""
    if member is None:
        raise KafkaError(
            f"a rule has the {what} {code}, which this client does not know",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    return member


def _filter_fields(wanted: AclFilter, suffix: str) -> dict[str, Any]:
    """As a request has them."""
    pattern_type = MATCH if wanted.is_match else _code(wanted.pattern_type)
    return {
        f"resource_type{suffix}": _code(wanted.resource_type),
        f"resource_name{suffix}": wanted.name,
        f"pattern_type{suffix}": pattern_type,
        f"principal{suffix}": wanted.principal,
        f"host{suffix}": wanted.host,
        "operation": _code(wanted.operation),
        "permission_type": _code(wanted.permission),
    }


def _code(value: Any) -> int:
    return ANY if value is None else int(value)
