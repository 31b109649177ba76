"""Access rules: lists, adds and removes them. Source: KIP-140, KIP-290."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TypeVar

from storage_engine.client.admin.requests import error_of, first_error
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.security.acl_rules import (
    ANY,
    MATCH,
    AccessRule,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from storage_engine.protocol.messages.create_acls import API as CREATE_ACLS
from storage_engine.protocol.messages.create_acls import CreateAclsRequest
from storage_engine.protocol.messages.delete_acls import API as DELETE_ACLS
from storage_engine.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from storage_engine.protocol.messages.describe_acls import API as DESCRIBE_ACLS
from storage_engine.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

EVERYTHING = AclFilter()

Member = TypeVar("Member")
_Removed = DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl


def describe_rules(cluster: Cluster, wanted: AclFilter = EVERYTHING) -> list[AclBinding]:
    """The rules that the filter finds, in order."""
    message = DescribeAclsRequest(
        resource_type_filter=_code(wanted.resource_type),
        resource_name_filter=wanted.name,
        pattern_type_filter=_pattern_type(wanted),
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=_code(wanted.operation),
        permission_type=_code(wanted.permission),
    )
    answer = cluster.ask_any(DESCRIBE_ACLS, message, error_of=error_of)
    return sorted(
        AclBinding(_pattern(resource), _rule(each))
        for resource in answer.resources
        for each in resource.acls
    )


def create_rules(cluster: Cluster, bindings: Iterable[AclBinding]) -> None:
    """Adds rules; one that is there already stays. KafkaError names the first that is refused."""
    message = CreateAclsRequest(
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=int(pattern.resource_type),
                resource_name=pattern.name,
                resource_pattern_type=int(pattern.pattern_type),
                principal=rule.principal,
                host=rule.host,
                operation=int(rule.operation),
                permission_type=int(rule.permission),
            )
            for pattern, rule in bindings
        ]
    )
    # To add a rule twice is as good as once.
    cluster.ask_any(CREATE_ACLS, message, error_of=lambda answer: first_error(answer.results))


def delete_rules(cluster: Cluster, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """Removes the rules that the filters find, and returns them."""
    message = DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=_code(each.resource_type),
                resource_name_filter=each.name,
                pattern_type_filter=_pattern_type(each),
                principal_filter=each.principal,
                host_filter=each.host,
                operation=_code(each.operation),
                permission_type=_code(each.permission),
            )
            for each in filters
        ]
    )
    removed: set[AclBinding] = set()

    def error_of_rules(answer: DeleteAclsResponse) -> KafkaError | None:
        """Collect the removed rules, which a retry does not find; return the first error."""
        rows = [row for result in answer.filter_results for row in result.matching_acls]
        removed.update(AclBinding(_pattern(row), _rule(row)) for row in rows if not row.error_code)
        return first_error([*answer.filter_results, *rows])

    cluster.ask_any(DELETE_ACLS, message, error_of=error_of_rules)
    return sorted(removed)


def _pattern(row: DescribeAclsResponse.DescribeAclsResource | _Removed) -> ResourcePattern:
    return ResourcePattern(
        _known(ResourceType.coded(row.resource_type), "resource type", row.resource_type),
        row.resource_name,
        _known(PatternType.coded(row.pattern_type), "pattern type", row.pattern_type),
    )


def _rule(row: DescribeAclsResponse.DescribeAclsResource.AclDescription | _Removed) -> AccessRule:
    return AccessRule(
        row.principal,
        row.host,
        _known(AclOperation.coded(row.operation), "operation", row.operation),
        _known(AclPermission.coded(row.permission_type), "permission", row.permission_type),
    )


def _known(member: Member | None, what: str, code: int) -> Member:
    """Return `member`; KafkaError for a number that only a newer broker knows."""
    if member is None:
        raise KafkaError(
            f"a rule has the {what} {code}, which this client does not know",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    return member


def _pattern_type(wanted: AclFilter) -> int:
    return MATCH if wanted.is_match else _code(wanted.pattern_type)


def _code(value: IntEnum | None) -> int:
    return ANY if value is None else int(value)
