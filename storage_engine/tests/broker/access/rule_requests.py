"""Requests that add, remove and describe access rules."""

from typing import Any

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.security.acl_rules import AclOperation, ResourceType
from storage_engine.protocol.messages.create_acls import API as CREATE
from storage_engine.protocol.messages.create_acls import CreateAclsRequest
from storage_engine.protocol.messages.delete_acls import API as DELETE
from storage_engine.protocol.messages.delete_acls import DeleteAclsRequest
from storage_engine.protocol.messages.describe_acls import API as DESCRIBE
from storage_engine.protocol.messages.describe_acls import DescribeAclsRequest
from storage_engine.tests.broker.guards.guarded_cluster import BOB, authorizer_of

VERSION = 2
RULE = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:bob",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
"""Bob may read topic t."""
ANYTHING = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def send_create(cluster: SimulatedCluster, *rules: dict[str, Any], broker: int = 1) -> list[Any]:
    """The answer will be in the list. Each rule is RULE with the fields that are given."""
    creations = [CreateAclsRequest.AclCreation(**{**RULE, **each}) for each in rules]
    return cluster.ask(broker, CREATE, VERSION, CreateAclsRequest(creations=creations))


def create(cluster: SimulatedCluster, *rules: dict[str, Any], broker: int = 1) -> list[Any]:
    return cluster.answer(send_create(cluster, *rules, broker=broker)).results


def send_delete(cluster: SimulatedCluster, *filters: dict[str, Any], broker: int = 1) -> list[Any]:
    """The answer will be in the list. Each filter is ANYTHING with the fields that are given."""
    wanted = [DeleteAclsRequest.DeleteAclsFilter(**{**ANYTHING, **each}) for each in filters]
    return cluster.ask(broker, DELETE, VERSION, DeleteAclsRequest(filters=wanted))


def delete(cluster: SimulatedCluster, *filters: dict[str, Any], broker: int = 1) -> list[Any]:
    return cluster.answer(send_delete(cluster, *filters, broker=broker)).filter_results


def answer_to_describe(cluster: SimulatedCluster, **wanted: Any) -> Any:
    asked = DescribeAclsRequest(**{**ANYTHING, **wanted})
    return cluster.answer(cluster.ask(1, DESCRIBE, VERSION, asked))


def described(cluster: SimulatedCluster, **wanted: Any) -> set[tuple[str, int, str, int]]:
    """(resource, type of pattern, principal, operation) of each rule."""
    answer = answer_to_describe(cluster, **wanted)
    assert not answer.error_code, answer.error_message
    return {
        (row.resource_name, row.pattern_type, rule.principal, rule.operation)
        for row in answer.resources
        for rule in row.acls
    }


def may_read(cluster: SimulatedCluster, broker: int, name: str = "t") -> bool:
    """Whether Bob may read the topic, as this broker knows the rules."""
    authorizer = authorizer_of(cluster, broker)
    return authorizer.allows(BOB, "host", AclOperation.READ, ResourceType.TOPIC, name)
