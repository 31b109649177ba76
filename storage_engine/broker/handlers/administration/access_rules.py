"""DescribeAcls, CreateAcls and DeleteAcls: the access rules of the cluster.

Any broker answers; it has a change in force itself when it answers, the others have it within a
second. Source: KIP-140, KIP-290.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from storage_engine.broker.access.rule_changes import RuleChanges, RuleOutcome
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.security.acl_rules import (
    ANY,
    AccessRule,
    AclBinding,
    AclFilter,
    AclFormatError,
    ResourcePattern,
    binding_of,
    filter_of,
)
from storage_engine.core.security.authorizer import Authorizer
from storage_engine.core.settings.settings import AUTHORIZER
from storage_engine.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from storage_engine.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from storage_engine.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

REQUEST_MAX = 2_000
"""The most rules, or filters for deletion, of one request: each may be a write."""

DELETED_MAX = 20_000
"""The most patterns with rules that one request may delete."""

_OFF = f"no authorizer is configured: set {AUTHORIZER} on all brokers"
_Resource = DescribeAclsResponse.DescribeAclsResource
_Filtered = DeleteAclsResponse.DeleteAclsFilterResult
_Removed = _Filtered.DeleteAclsMatchingAcl


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRuleHandlers:
    """Answers the requests about access rules; without an authorizer, with SECURITY_DISABLED."""

    authorizer: Authorizer | None = None
    changes: RuleChanges | None = None

    def describe(self, call: ApiCall[DescribeAclsResponse], request: DescribeAclsRequest) -> Steps:
        if self.authorizer is None:
            _respond_description(call, ErrorCode.SECURITY_DISABLED, _OFF)
            return
        try:
            wanted = filter_of(
                resource_type=request.resource_type_filter,
                name=request.resource_name_filter,
                pattern_type=request.pattern_type_filter,
                principal=request.principal_filter,
                host=request.host_filter,
                operation=request.operation,
                permission=request.permission_type,
            )
        except AclFormatError as failure:
            _respond_description(call, ErrorCode.INVALID_REQUEST, str(failure))
            return
        index = self.authorizer.index
        resources = []
        for pattern in index.patterns():
            yield None
            if not wanted.finds_pattern(pattern):
                continue
            rules = []
            for rule in index.rules(pattern):
                if wanted.finds_rule(rule):
                    rules.append(_Resource.AclDescription(**_rule_fields(rule)))
                yield None
            if rules:
                resources.append(_Resource(**_pattern_fields(pattern), acls=rules))
        call.respond(DescribeAclsResponse(error_code=0, error_message=None, resources=resources))

    def create(self, call: ApiCall[CreateAclsResponse], request: CreateAclsRequest) -> Steps:
        outcomes: list[KafkaError | AclBinding] = []
        refusal = self._refusal(len(request.creations), "rules")
        for item in request.creations:
            outcomes.append(refusal or _created(item))
            yield None

        def answer(changed: dict[ResourcePattern, RuleOutcome]) -> Steps:
            rows = []
            for outcome in outcomes:
                failure: KafkaError | None
                if isinstance(outcome, KafkaError):
                    failure = outcome
                else:
                    failure = changed[outcome.pattern].failure
                rows.append(CreateAclsResponse.AclCreationResult(**_error_fields(failure)))
                yield None
            call.respond(CreateAclsResponse(results=rows))

        bindings = [each for each in outcomes if isinstance(each, AclBinding)]
        if self.changes is None or not bindings:
            yield from answer({})
        else:
            self.changes.create(
                bindings, lambda changed: call.run(answer(changed)), call.check_allowed
            )

    def delete(self, call: ApiCall[DeleteAclsResponse], request: DeleteAclsRequest) -> Steps:
        refusal = self._refusal(len(request.filters), "filters")
        outcomes: list[KafkaError | AclFilter] = []
        for item in request.filters:
            outcomes.append(refusal or _filter(item))
            yield None
        filters = [each for each in outcomes if isinstance(each, AclFilter)]
        patterns: list[ResourcePattern] = []
        for pattern in self.authorizer.index.patterns() if self.authorizer is not None else ():
            if any(each.finds_pattern(pattern) for each in filters):
                patterns.append(pattern)
            yield None

        def answer(changed: dict[ResourcePattern, RuleOutcome]) -> Steps:
            rows = []
            for outcome in outcomes:
                if isinstance(outcome, KafkaError):
                    rows.append(_Filtered(**_error_fields(outcome), matching_acls=[]))
                else:
                    matching = yield from _matching(outcome, changed)
                    rows.append(_Filtered(error_code=0, error_message=None, matching_acls=matching))
                yield None
            call.respond(DeleteAclsResponse(filter_results=rows))

        if len(patterns) > DELETED_MAX:
            outcomes = [_too_many(f"rules about {len(patterns)} resources", DELETED_MAX)] * len(
                outcomes
            )
            patterns = []
        if self.changes is None or not patterns:
            yield from answer({})
        else:
            self.changes.delete(
                patterns, filters, lambda changed: call.run(answer(changed)), call.check_allowed
            )

    def _refusal(self, count: int, what: str) -> KafkaError | None:
        if self.authorizer is None:
            return KafkaError(_OFF, ErrorCode.SECURITY_DISABLED)
        return _too_many(f"{count} {what}", REQUEST_MAX) if count > REQUEST_MAX else None


def _too_many(what: str, most: int) -> KafkaError:
    return KafkaError(
        f"{what} in one request, at most {most} are possible: send several",
        ErrorCode.INVALID_REQUEST,
    )


def _respond_description(call: ApiCall[DescribeAclsResponse], code: ErrorCode, text: str) -> None:
    call.respond(DescribeAclsResponse(error_code=int(code), error_message=text, resources=[]))


def _created(item: CreateAclsRequest.AclCreation) -> KafkaError | AclBinding:
    try:
        return binding_of(
            resource_type=item.resource_type,
            name=item.resource_name,
            pattern_type=item.resource_pattern_type,
            principal=item.principal,
            host=item.host,
            operation=item.operation,
            permission=item.permission_type,
        )
    except AclFormatError as failure:
        return KafkaError(str(failure), ErrorCode.INVALID_REQUEST).as_outcome()


def _filter(
    item: DeleteAclsRequest.DeleteAclsFilter | DescribeAclsRequest,
) -> KafkaError | AclFilter:
    try:
        return filter_of(
            resource_type=item.resource_type_filter,
            name=item.resource_name_filter,
            pattern_type=item.pattern_type_filter,
            principal=item.principal_filter,
            host=item.host_filter,
            operation=item.operation,
            permission=item.permission_type,
        )
    except AclFormatError as failure:
        return KafkaError(str(failure), ErrorCode.INVALID_REQUEST).as_outcome()


def _matching(
    wanted: AclFilter, changed: dict[ResourcePattern, RuleOutcome]
) -> Generator[None, None, list[_Removed]]:
    """The rows of one filter: the rules that were removed, and the patterns that failed."""
    rows: list[_Removed] = []
    for pattern, (failure, removed) in changed.items():
        yield None
        if not wanted.finds_pattern(pattern):
            continue
        if failure is not None:
            # The rules that the filter would have removed are not known.
            rows.append(_failed_row(pattern, wanted, failure))
        rows += [_removed_row(pattern, rule) for rule in removed if wanted.finds_rule(rule)]
    return rows


def _removed_row(pattern: ResourcePattern, rule: AccessRule) -> _Removed:
    return _Removed(
        error_message=None,
        resource_type=int(pattern.resource_type),
        resource_name=pattern.name,
        pattern_type=int(pattern.pattern_type),
        principal=rule.principal,
        host=rule.host,
        operation=int(rule.operation),
        permission_type=int(rule.permission),
    )


def _failed_row(pattern: ResourcePattern, wanted: AclFilter, failure: KafkaError) -> _Removed:
    return _Removed(
        error_code=int(failure.code),
        error_message=str(failure),
        resource_type=int(pattern.resource_type),
        resource_name=pattern.name,
        pattern_type=int(pattern.pattern_type),
        principal=wanted.principal or "",
        host=wanted.host or "",
        operation=int(wanted.operation or ANY),
        permission_type=int(wanted.permission or ANY),
    )


def _error_fields(failure: KafkaError | None) -> dict[str, Any]:
    if failure is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": int(failure.code), "error_message": str(failure)}


def _pattern_fields(pattern: ResourcePattern) -> dict[str, Any]:
    return {
        "resource_type": int(pattern.resource_type),
        "resource_name": pattern.name,
        "pattern_type": int(pattern.pattern_type),
    }


def _rule_fields(rule: AccessRule) -> dict[str, Any]:
    return {
        "principal": rule.principal,
        "host": rule.host,
        "operation": int(rule.operation),
        "permission_type": int(rule.permission),
    }
