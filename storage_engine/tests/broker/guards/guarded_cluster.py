"""Brokers with an authorizer, and a client that may do what a test says."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from simulation.world.cluster import SimulatedCluster
from simulation.world.network import CLIENT
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import (
    AccessRule,
    AclOperation,
    AclPermission,
    ResourcePattern,
    ResourceType,
)
from storage_engine.core.security.authorizer import Authorizer
from storage_engine.core.security.principal import Principal
from storage_engine.tests.protocol.apis.struct_classes import api_of

ADMIN, BOB, BROKER = Principal("admin"), Principal("bob"), Principal("broker")
Wanted = tuple[AclOperation, ResourceType, str]
"""A right: operation, resource."""

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

SETTINGS = {
    "authorizer_class_name": "AclAuthorizer",
    "super_users": "User:broker;User:admin",
    "default_replication_factor": "1",
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
}


def guarded_cluster(folder: Path, count: int = 1, **settings: str) -> SimulatedCluster:
    """A cluster whose brokers are super users, as is the client at first."""
    principals = {CLIENT: ADMIN, **dict.fromkeys(range(1, count + 1), BROKER)}
    return SimulatedCluster(folder, count, principals=principals, **{**SETTINGS, **settings})


def wait_for_coordinators(cluster: SimulatedCluster) -> None:
    """Of the group `g` and the transactional id `x`: before, the first request for each fails."""
    spec, request = api_of(10)
    for kind, name in ((0, "g"), (1, "x")):
        asked = request(key=name, key_type=kind)
        for _ in range(100):
            if not codes_in(cluster.answer(cluster.ask(1, spec, 3, asked))):
                break
            cluster.loop.run_for(100)
        else:
            raise AssertionError("no coordinator")


def come_as(cluster: SimulatedCluster, principal: Principal) -> None:
    """The client is somebody else from now on."""
    cluster.network.principals[CLIENT] = principal
    for connection in cluster.network.connections:
        if connection.sender == CLIENT:
            connection.principal = principal


def authorizer_of(cluster: SimulatedCluster, broker: int = 1) -> Authorizer:
    access = cluster[broker].parts.access
    assert access is not None
    return access.control.authorizer


def allow_only(cluster: SimulatedCluster, rights: Iterable[Wanted]) -> None:
    """Bob may do this and nothing else."""
    authorizer = authorizer_of(cluster)
    rules: dict[ResourcePattern, set[AccessRule]] = {}
    for operation, kind, name in rights:
        rule = AccessRule(str(BOB), "*", operation, AclPermission.ALLOW)
        rules.setdefault(ResourcePattern(kind, name), set()).add(rule)
    for pattern in authorizer.index.patterns():
        authorizer.put(pattern, frozenset())
    for pattern, some in rules.items():
        authorizer.put(pattern, frozenset(some))


def codes_in(answer: Any) -> set[ErrorCode]:
    """All error codes anywhere in an answer, but for "no error" and for the one that hides the
    settings of a topic that was made."""
    return {ErrorCode.of(code) for code in _codes(answer) if code}


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        for item in value:
            yield from _codes(item)
        return
    for name in _field_names(value):
        item = getattr(value, name)
        if name == "topic_config_error_code":
            continue
        if name.endswith("error_code"):
            yield item
        elif not isinstance(item, int | str | bytes | None):
            yield from _codes(item)


def _field_names(value: Any) -> Iterable[str]:
    if hasattr(value, "_fields"):
        return value._fields
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    fields = getattr(type(value), "fields", None)
    return [field for field in fields if hasattr(value, field)] if isinstance(fields, dict) else ()
