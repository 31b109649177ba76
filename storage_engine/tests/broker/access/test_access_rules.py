"""Requests about access rules: what filters find, and which rules are refused."""

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.tests.broker.access.rule_requests import (
    answer_to_describe,
    create,
    delete,
    described,
)


def test_filters_find_rules_by_each_field_and_by_match(cluster) -> None:
    create(
        cluster,
        {},
        {"resource_name": "*"},
        {"resource_name": "te", "resource_pattern_type": 4},
        {"resource_name": "team", "principal": "User:carol"},
        {"resource_type": 3, "resource_name": "team"},
    )
    assert len(described(cluster)) == 5
    found = described(
        cluster, resource_type_filter=2, resource_name_filter="team", pattern_type_filter=2
    )
    assert {name for name, *_ in found} == {"*", "te", "team"}
    assert {p for *_, p, _ in described(cluster, principal_filter="User:carol")} == {"User:carol"}
    literal = described(cluster, resource_name_filter="te", pattern_type_filter=3)
    assert literal == set()
    first, second = delete(
        cluster, {"principal_filter": "User:carol"}, {"resource_name_filter": "no"}
    )
    assert len(first.matching_acls) == 1 and second.matching_acls == []
    (nothing,) = delete(cluster, {"principal_filter": "User:carol"})
    assert nothing.matching_acls == []


@pytest.mark.parametrize(
    "wanted", [{"resource_type_filter": 6}, {"resource_type_filter": 7}, {"operation": 14}]
)
def test_filters_by_what_only_kafka_has_rules_about_find_none(cluster, wanted) -> None:
    create(cluster, {})
    assert described(cluster, **wanted) == set()
    (nothing,) = delete(cluster, wanted)
    assert not nothing.error_code and nothing.matching_acls == []
    assert len(described(cluster)) == 1


def test_bad_rules_are_refused_each_by_itself(cluster) -> None:
    good, bad = create(cluster, {}, {"resource_name": "a/b"})
    assert not good.error_code
    assert bad.error_code == ErrorCode.INVALID_REQUEST and "a/b" in bad.error_message
    (refused,) = delete(cluster, {"operation": 77})
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    many = create(cluster, *({"resource_name": f"n{n}"} for n in range(2001)))
    assert {row.error_code for row in many} == {ErrorCode.INVALID_REQUEST}


def test_without_an_authorizer_they_say_so(tmp_path) -> None:
    cluster = SimulatedCluster(tmp_path, 1)
    (result,) = create(cluster, {})
    assert result.error_code == ErrorCode.SECURITY_DISABLED
    assert "authorizer.class.name" in result.error_message
    (deleted,) = delete(cluster, {})
    assert deleted.error_code == ErrorCode.SECURITY_DISABLED
    assert answer_to_describe(cluster).error_code == ErrorCode.SECURITY_DISABLED
    assert not any(path.startswith("/kafka-acl") for path in cluster.zookeeper.nodes)
    cluster.close()
