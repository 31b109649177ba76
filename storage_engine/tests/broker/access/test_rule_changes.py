"""Rules that clients add and remove are written as Kafka writes them, and none is lost."""

import json

from storage_engine.tests.broker.access.rule_requests import create, delete, may_read, send_create


def test_a_rule_is_in_force_at_once_here_and_within_a_second_everywhere(cluster) -> None:
    (result,) = create(cluster, {})
    assert (result.error_code, result.error_message) == (0, None)
    assert may_read(cluster, 1)
    cluster.loop.run_for(1000)
    assert may_read(cluster, 2) and may_read(cluster, 3)
    (gone,) = delete(cluster, {"resource_name_filter": "t"}, broker=2)
    assert [rule.principal for rule in gone.matching_acls] == ["User:bob"]
    assert not may_read(cluster, 2)
    cluster.loop.run_for(1000)
    assert not may_read(cluster, 1) and not may_read(cluster, 3)


def test_the_nodes_are_those_of_kafka(cluster) -> None:
    create(cluster, {}, {"resource_name": "team-", "resource_pattern_type": 4, "host": "1.2.3.4"})
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
    delete(cluster, {})
    assert nodes.data("/kafka-acl/Topic/t") is None


def test_changes_of_one_resource_at_two_brokers_lose_nothing(cluster) -> None:
    waiting = [
        send_create(cluster, {"principal": f"User:p{number}"}, broker=1 + number % 3)
        for number in range(20)
    ]
    answers = [cluster.answer(each) for each in waiting]
    failed = [row.error_message for answer in answers for row in answer.results if row.error_code]
    stored = json.loads(cluster.zookeeper.data("/kafka-acl/Topic/t"))["acls"]
    assert (len(stored), failed) == (20, [])
