"""A topic in use, and what other programs do to its nodes in ZooKeeper."""

import json
from typing import Any

import pytest

from simulation.world.broker import SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

TP = TopicPartition("t", 0)
PATH = TopicZNode.path("t")
RECORDS = 5


cluster = cluster_fixture(min_insync_replicas="2", replica_lag_time_max_ms="2000")


@pytest.fixture
def topic(cluster) -> SimulatedCluster:
    assert cluster.create_topic("t").error_code == 0
    for number in range(RECORDS):
        assert cluster.produced(TP, b"%d" % number) == number
    cluster.wait_in_sync(TP, 1, 2, 3)
    return cluster


def put(cluster: SimulatedCluster, path: str, content: dict[str, Any]) -> None:
    cluster.zookeeper.put(path, json.dumps(content).encode())


def fields(cluster: SimulatedCluster, path: str) -> dict[str, Any]:
    data = cluster.zookeeper.data(path)
    assert data is not None
    return json.loads(data)


def write_without_id(cluster: SimulatedCluster, path: str, more: dict[str, Any]) -> None:
    """As a program does that knows no ids."""
    node = fields(cluster, path)
    node.pop("topic_id", None)
    node["partitions"].update(more)
    put(cluster, path, node)


def remove(cluster: SimulatedCluster, path: str) -> None:
    """With all that is below."""
    below = (p for p in cluster.zookeeper.nodes if p == path or p.startswith(f"{path}/"))
    for node in sorted(below, reverse=True):
        cluster.zookeeper.drop(node)


def next_controller(cluster: SimulatedCluster, *, epoch: int | None = None) -> None:
    """`epoch`: written by somebody while nobody is controller."""
    old = cluster.controller
    assert old is not None
    old.kill(session_ends_at_once=True)
    if epoch is not None:
        cluster.zookeeper.put(ControllerEpochZNode.PATH, str(epoch).encode())
    cluster.loop.run_until(lambda: cluster.controller not in (None, old))
    old.start()
    cluster.loop.run_for(5000)


def holds_everything(cluster: SimulatedCluster, tp: TopicPartition = TP) -> None:
    """The next leader has every record, and appends where the last leader ended."""
    next_controller(cluster)
    assert cluster.produced(tp, b"next") == RECORDS
    cluster.wait_in_sync(tp, 1, 2, 3)
    for broker in cluster.brokers:
        assert broker.logs.logs[tp].log_end_offset == RECORDS + 1
        assert not list(broker.logs.dirs.working_paths[0].glob("*-stray"))


STATE = PartitionStateZNode.path("t", 0)


def next_leader(cluster: SimulatedCluster) -> None:
    """The present one is killed, and started again."""
    leader = next(b for b in cluster.brokers if b.up and is_led_by(b))
    leader.kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: any(b.up and is_led_by(b) for b in cluster.brokers))
    leader.start()
    cluster.loop.run_for(5000)


def is_led_by(broker: SimulatedBroker) -> bool:
    partition = broker.replicas.get(TP)
    return partition is not None and partition.leader is not None


def lead_elsewhere_than_controller(cluster: SimulatedCluster) -> None:
    if is_led_by(cluster.controller):
        next_controller(cluster)
        cluster.wait_in_sync(TP, 1, 2, 3)
    assert not is_led_by(cluster.controller)
