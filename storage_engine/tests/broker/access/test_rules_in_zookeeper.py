"""Rules are in ZooKeeper as Kafka has them, and in force on all brokers soon after a change."""

import json

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.access import rule_watch
from storage_engine.core.errors import ErrorCode
from storage_engine.core.security.acl_rules import AclOperation, ResourceType
from storage_engine.protocol.messages.create_acls import API as CREATE
from storage_engine.protocol.messages.create_acls import CreateAclsRequest
from storage_engine.protocol.messages.delete_acls import API as DELETE
from storage_engine.protocol.messages.delete_acls import DeleteAclsRequest
from storage_engine.protocol.messages.describe_acls import API as DESCRIBE
from storage_engine.protocol.messages.describe_acls import DescribeAclsRequest
from storage_engine.tests.broker.guards.guarded_cluster import (
    BOB,
    authorizer_of,
    guarded_cluster,
)

VERSION = 2
OPEN = "shows ZooKeeper no certificate: whoever reaches zookeeper.connect="
READ, TOPIC = AclOperation.READ, ResourceType.TOPIC
RULE = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:bob",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ANYTHING = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@pytest.fixture
def cluster(tmp_path):
    made = guarded_cluster(tmp_path, 3)
    yield made
    made.close()


def _create(cluster, *rules, broker=1):
    asked = CreateAclsRequest(
        creations=[CreateAclsRequest.AclCreation(**{**RULE, **each}) for each in rules]
    )
    return cluster.answer(cluster.ask(broker, CREATE, VERSION, asked)).results


def _delete(cluster, *filters, broker=1):
    asked = DeleteAclsRequest(
        filters=[DeleteAclsRequest.DeleteAclsFilter(**{**ANYTHING, **each}) for each in filters]
    )
    return cluster.answer(cluster.ask(broker, DELETE, VERSION, asked)).filter_results


def _described(cluster, broker=1, **wanted):
    asked = DescribeAclsRequest(**{**ANYTHING, **wanted})
    answer = cluster.answer(cluster.ask(broker, DESCRIBE, VERSION, asked))
    assert not answer.error_code, answer.error_message
    return {
        (row.resource_name, row.pattern_type, rule.principal, rule.operation)
        for row in answer.resources
        for rule in row.acls
    }


def _may_read(cluster, broker, name="t"):
    return authorizer_of(cluster, broker).allows(BOB, "host", READ, TOPIC, name)


def test_a_rule_is_in_force_at_once_here_and_within_a_second_everywhere(cluster) -> None:
    (result,) = _create(cluster, {})
    assert (result.error_code, result.error_message) == (0, None)
    assert _may_read(cluster, 1)
    cluster.loop.run_for(1000)
    assert _may_read(cluster, 2) and _may_read(cluster, 3)
    (gone,) = _delete(cluster, {"resource_name_filter": "t"}, broker=2)
    assert [rule.principal for rule in gone.matching_acls] == ["User:bob"]
    assert not _may_read(cluster, 2)
    cluster.loop.run_for(1000)
    assert not _may_read(cluster, 1) and not _may_read(cluster, 3)


def test_the_nodes_are_those_of_kafka(cluster) -> None:
    _create(cluster, {}, {"resource_name": "team-", "resource_pattern_type": 4, "host": "1.2.3.4"})
    nodes = cluster.zookeeper
    assert json.loads(nodes.data("/kafka-acl/Topic/t")) == {
        "version": 1,
        "acls": [
            {
                "principal": "User:bob",
                "permissionType": "Allow",
                "operation": "Read",
                "host": "*",
            }
        ],
    }
    prefixed = json.loads(nodes.data("/kafka-acl-extended/prefixed/Topic/team-"))
    assert prefixed["acls"][0]["host"] == "1.2.3.4"
    assert nodes.data("/kafka-acl-changes/acl_changes_0000000000") == b"Topic:t"
    assert json.loads(nodes.data("/kafka-acl-extended-changes/acl_changes_0000000000")) == {
        "version": 1,
        "resourceType": "Topic",
        "name": "team-",
        "patternType": "PREFIXED",
    }
    _delete(cluster, {})
    assert nodes.data("/kafka-acl/Topic/t") is None


def test_a_rule_of_another_program_is_learned_by_its_notice(cluster) -> None:
    rules = {
        "version": 1,
        "acls": [
            {"principal": "User:bob", "permissionType": "Allow", "operation": "All", "host": "*"}
        ],
    }
    session = cluster[1].session
    session.create("/kafka-acl/Topic/foreign", json.dumps(rules).encode(), lambda _reply: None)
    path = "/kafka-acl-changes/acl_changes_"
    session.create(path, b"Topic:foreign", lambda _reply: None, sequence=True)
    cluster.loop.run_for(1000)
    assert all(_may_read(cluster, broker, "foreign") for broker in (1, 2, 3))


def test_rules_that_cannot_be_read_permit_nothing(cluster) -> None:
    _create(cluster, {})
    cluster.loop.run_for(1000)
    session = cluster[1].session
    broken = b'{"version":1,"acls":[{"principal":"User:bob","permissionType":"Allow"}]}'
    session.set("/kafka-acl/Topic/t", broken, -1, lambda _reply: None)
    path = "/kafka-acl-changes/acl_changes_"
    session.create(path, b"Topic:t", lambda _reply: None, sequence=True)
    cluster.loop.run_for(1000)
    assert not any(_may_read(cluster, broker) for broker in (1, 2, 3))
    (result,) = _create(cluster, {"operation": 4})
    assert "repair or remove it in ZooKeeper" in result.error_message


def test_a_broker_that_was_away_reads_everything_again(cluster, monkeypatch) -> None:
    monkeypatch.setattr(rule_watch, "KEEP_MS", 20_000)
    _create(cluster, {})
    cluster.loop.run_for(1000)
    cluster[3].pause()
    cluster.loop.run_for(8_000)
    _delete(cluster, {})
    _create(cluster, {"resource_name": "other"})
    cluster.loop.run_for(30_000)
    # By now the notices are gone.
    _create(cluster, {"resource_name": "third"})
    cluster.loop.run_for(1000)
    cluster[3].resume()
    cluster.loop.run_for(10_000)
    assert not _may_read(cluster, 3)
    assert _may_read(cluster, 3, "other") and _may_read(cluster, 3, "third")


def test_a_restarted_broker_reads_the_rules_before_it_registers(cluster) -> None:
    _create(cluster, {}, {"resource_name": "u", "resource_pattern_type": 4})
    cluster[2].stop()
    cluster.loop.run_for(1000)
    cluster[2].start()
    cluster.loop.run_until(lambda: cluster[2].broker_epoch > 0)
    assert _may_read(cluster, 2) and _may_read(cluster, 2, "under")


def test_old_notices_are_removed(cluster, monkeypatch) -> None:
    monkeypatch.setattr(rule_watch, "KEEP_MS", 20_000)
    _create(cluster, {})
    cluster.loop.run_for(30_000)
    _create(cluster, {"resource_name": "u"})
    cluster.loop.run_for(1000)
    children = [path for path in cluster.zookeeper.nodes if "/acl_changes_" in path]
    assert children == ["/kafka-acl-changes/acl_changes_0000000001"]


def test_filters_find_rules_by_each_field_and_by_match(cluster) -> None:
    _create(
        cluster,
        {},
        {"resource_name": "*"},
        {"resource_name": "te", "resource_pattern_type": 4},
        {"resource_name": "team", "principal": "User:carol"},
        {"resource_type": 3, "resource_name": "team"},
    )
    assert len(_described(cluster)) == 5
    found = _described(
        cluster, resource_type_filter=2, resource_name_filter="team", pattern_type_filter=2
    )
    assert {name for name, *_ in found} == {"*", "te", "team"}
    assert {p for *_, p, _ in _described(cluster, principal_filter="User:carol")} == {"User:carol"}
    literal = _described(cluster, resource_name_filter="te", pattern_type_filter=3)
    assert literal == set()
    first, second = _delete(
        cluster, {"principal_filter": "User:carol"}, {"resource_name_filter": "no"}
    )
    assert len(first.matching_acls) == 1 and second.matching_acls == []
    (nothing,) = _delete(cluster, {"principal_filter": "User:carol"})
    assert nothing.matching_acls == []


@pytest.mark.parametrize(
    "wanted", [{"resource_type_filter": 6}, {"resource_type_filter": 7}, {"operation": 14}]
)
def test_filters_by_what_only_kafka_has_rules_about_find_none(cluster, wanted) -> None:
    _create(cluster, {})
    assert _described(cluster, **wanted) == set()
    (nothing,) = _delete(cluster, wanted)
    assert not nothing.error_code and nothing.matching_acls == []
    assert len(_described(cluster)) == 1


def test_bad_rules_are_refused_each_by_itself(cluster) -> None:
    good, bad = _create(cluster, {}, {"resource_name": "a/b"})
    assert not good.error_code
    assert bad.error_code == ErrorCode.INVALID_REQUEST and "a/b" in bad.error_message
    (refused,) = _delete(cluster, {"operation": 77})
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    many = _create(cluster, *({"resource_name": f"n{n}"} for n in range(2001)))
    assert {row.error_code for row in many} == {ErrorCode.INVALID_REQUEST}


def test_changes_of_one_resource_at_two_brokers_lose_nothing(cluster) -> None:
    waiting = []
    for number in range(20):
        rule = CreateAclsRequest.AclCreation(**{**RULE, "principal": f"User:p{number}"})
        asked = CreateAclsRequest(creations=[rule])
        waiting.append(cluster.ask(1 + number % 3, CREATE, VERSION, asked))
    answers = [cluster.answer(each) for each in waiting]
    failed = [row.error_message for answer in answers for row in answer.results if row.error_code]
    stored = json.loads(cluster.zookeeper.data("/kafka-acl/Topic/t"))["acls"]
    assert (len(stored), failed) == (20, [])


def test_without_an_authorizer_they_say_so(tmp_path) -> None:
    cluster = SimulatedCluster(tmp_path, 1)
    (result,) = _create(cluster, {})
    assert result.error_code == ErrorCode.SECURITY_DISABLED
    assert "authorizer.class.name" in result.error_message
    (deleted,) = _delete(cluster, {})
    assert deleted.error_code == ErrorCode.SECURITY_DISABLED
    answer = cluster.answer(cluster.ask(1, DESCRIBE, VERSION, DescribeAclsRequest(**ANYTHING)))
    assert answer.error_code == ErrorCode.SECURITY_DISABLED
    assert not any(path.startswith("/kafka-acl") for path in cluster.zookeeper.nodes)
    cluster.close()


@pytest.mark.parametrize(
    ("settings", "says_so"),
    [
        ({}, True),
        ({"zookeeper_ssl_client_enable": "true"}, True),
        (
            {
                "zookeeper_ssl_client_enable": "true",
                "zookeeper_ssl_keystore_location": "/brokers.pem",
            },
            False,
        ),
    ],
)
def test_each_start_with_rules_in_an_open_zookeeper_says_so(tmp_path, caplog, settings, says_so):
    cluster = guarded_cluster(tmp_path, **settings)
    for _ in range(2):
        caplog.clear()
        cluster[1].stop()
        cluster[1].start()
        assert [OPEN in each.getMessage() for each in caplog.records].count(True) == says_so
    cluster.close()
