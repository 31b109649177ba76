"""Brokers learn of every rule in ZooKeeper, and permit nothing where a rule can't be read."""

import json

import pytest

from storage_engine.broker.access import rule_watch
from storage_engine.tests.broker.access.rule_requests import create, delete, may_read
from storage_engine.tests.broker.guards.guarded_cluster import guarded_cluster

OPEN = "shows ZooKeeper no certificate: whoever reaches zookeeper.connect="


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
    assert all(may_read(cluster, broker, "foreign") for broker in (1, 2, 3))


def test_rules_that_cannot_be_read_permit_nothing(cluster) -> None:
    create(cluster, {})
    cluster.loop.run_for(1000)
    session = cluster[1].session
    broken = b'{"version":1,"acls":[{"principal":"User:bob","permissionType":"Allow"}]}'
    session.set("/kafka-acl/Topic/t", broken, -1, lambda _reply: None)
    path = "/kafka-acl-changes/acl_changes_"
    session.create(path, b"Topic:t", lambda _reply: None, sequence=True)
    cluster.loop.run_for(1000)
    assert not any(may_read(cluster, broker) for broker in (1, 2, 3))
    (result,) = create(cluster, {"operation": 4})
    assert "repair or remove it in ZooKeeper" in result.error_message


def test_a_broker_that_was_away_reads_everything_again(cluster, monkeypatch) -> None:
    monkeypatch.setattr(rule_watch, "KEEP_MS", 20_000)
    create(cluster, {})
    cluster.loop.run_for(1000)
    cluster[3].pause()
    cluster.loop.run_for(8_000)
    delete(cluster, {})
    create(cluster, {"resource_name": "other"})
    cluster.loop.run_for(30_000)
    # By now the notices are gone.
    create(cluster, {"resource_name": "third"})
    cluster.loop.run_for(1000)
    cluster[3].resume()
    cluster.loop.run_for(10_000)
    assert not may_read(cluster, 3)
    assert may_read(cluster, 3, "other") and may_read(cluster, 3, "third")


def test_a_restarted_broker_reads_the_rules_before_it_registers(cluster) -> None:
    create(cluster, {}, {"resource_name": "u", "resource_pattern_type": 4})
    cluster[2].stop()
    cluster.loop.run_for(1000)
    cluster[2].start()
    cluster.loop.run_until(lambda: cluster[2].broker_epoch > 0)
    assert may_read(cluster, 2) and may_read(cluster, 2, "under")


def test_old_notices_are_removed(cluster, monkeypatch) -> None:
    monkeypatch.setattr(rule_watch, "KEEP_MS", 20_000)
    create(cluster, {})
    cluster.loop.run_for(30_000)
    create(cluster, {"resource_name": "u"})
    cluster.loop.run_for(1000)
    children = [path for path in cluster.zookeeper.nodes if "/acl_changes_" in path]
    assert children == ["/kafka-acl-changes/acl_changes_0000000001"]


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
