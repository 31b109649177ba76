"""Requests below /admin that other programs write or change: carried out once, and removed, at
little cost. Source: R-CTL10."""

import json

import pytest

from simulation.world.zookeeper_session import SimulatedSession
from storage_engine.broker.controller.admin_requests import CONFLICT_PAUSE_MS
from storage_engine.tests.broker.controller.foreign_znodes import (
    cluster,
    next_controller,
    serves_what_is_sound,
)
from storage_engine.zookeeper.admin_znodes import (
    PreferredReplicaElectionZNode,
    ReassignPartitionsZNode,
)
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

__all__ = ["cluster"]


def test_a_request_to_delete_no_topic_waits_for_none(cluster):
    """A topic of that name that is made later is not deleted, by the next controller either."""
    path = "/admin/delete_topics/later/x"
    cluster.zookeeper.make_parents(path)
    cluster.zookeeper.put(path, b"")
    cluster.loop.run_until(lambda: "/admin/delete_topics/later" not in cluster.zookeeper.nodes)
    assert cluster.create_topic("later").error_code == 0
    next_controller(cluster)
    serves_what_is_sound(cluster, "after")
    assert TopicZNode.path("later") in cluster.zookeeper.nodes


@pytest.mark.parametrize("node", [PreferredReplicaElectionZNode, ReassignPartitionsZNode])
def test_a_request_with_nodes_below_it_is_carried_out_and_removed(cluster, monkeypatch, node):
    """ZooKeeper removes nothing that has children: its controller tried as fast as it could."""
    submit, operations = SimulatedSession._submit, []

    def counting(self, *args, **options):
        operations.append(args)
        submit(self, *args, **options)

    monkeypatch.setattr(SimulatedSession, "_submit", counting)
    request = {"topic": "sound", "partition": 0, "replicas": [1, 2, 3]}
    cluster.zookeeper.put(node.PATH, b"{}")
    cluster.zookeeper.put(f"{node.PATH}/x", b"")
    cluster.zookeeper.put(f"{node.PATH}/x/y", b"")
    cluster.zookeeper.put(node.PATH, json.dumps({"version": 1, "partitions": [request]}).encode())
    cluster.loop.run_until(lambda: node.PATH not in cluster.zookeeper.nodes, limit_ms=5_000)
    assert len(operations) < 100


def test_a_request_that_others_make_nodes_below_all_the_time_costs_little(cluster, monkeypatch):
    path = PreferredReplicaElectionZNode.PATH
    delete, deletions = SimulatedSession.delete, []

    def refused(self, at, version, on_reply):
        if at == path:
            deletions.append(at)
            cluster.zookeeper.put(f"{path}/x{len(deletions)}", b"")
        delete(self, at, version, on_reply)

    monkeypatch.setattr(SimulatedSession, "delete", refused)
    cluster.zookeeper.put(path, b'{"version":1,"partitions":[{"topic":"sound","partition":0}]}')
    cluster.loop.run_for(5_000)
    assert 2 < len(deletions) <= 5_000 // CONFLICT_PAUSE_MS
    monkeypatch.undo()
    cluster.loop.run_until(lambda: path not in cluster.zookeeper.nodes, limit_ms=5_000)
