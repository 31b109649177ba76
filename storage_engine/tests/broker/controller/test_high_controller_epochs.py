"""Somebody wrote a high number into /controller_epoch: partitions without a state are led all the
same, over failovers. Source: R-CTL1, R-CTL10."""

import pytest

from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

TP = TopicPartition("t", 0)
STATE = PartitionStateZNode.path("t", 0)


cluster = cluster_fixture(min_insync_replicas="2")


def next_controller(cluster: SimulatedCluster, *, epoch: int | None = None) -> None:
    old = cluster.controller
    assert old is not None
    old.kill(session_ends_at_once=True)
    if epoch is not None:
        cluster.zookeeper.put(ControllerEpochZNode.PATH, str(epoch).encode())
    cluster.loop.run_until(lambda: cluster.controller not in (None, old))
    old.start()
    cluster.loop.run_for(5000)


@pytest.mark.parametrize("epoch", [2**21 - 1, 3_000_000])
def test_a_topic_made_between_two_controllers_is_led(cluster, epoch):
    old = cluster.controller
    old.kill(session_ends_at_once=True)
    cluster.zookeeper.put(ControllerEpochZNode.PATH, str(epoch).encode())
    cluster.zookeeper.put(TopicZNode.path("t"), b'{"version":1,"partitions":{"0":[1,2,3]}}')
    cluster.loop.run_until(lambda: cluster.controller not in (None, old))
    old.start()
    assert cluster.produced_when_there(TP, b"first") == 0
    next_controller(cluster)
    assert cluster.produced(TP, b"second") == 1
    cluster.wait_in_sync(TP, 1, 2, 3)


def test_a_state_removed_twice_while_nobody_is_controller_costs_no_record(cluster):
    assert cluster.create_topic("t").error_code == 0
    assert cluster.produced(TP, b"first") == 0
    cluster.wait_in_sync(TP, 1, 2, 3)
    leader_epoch = cluster.state(TP).leader_epoch
    for number in (1, 2):
        cluster.zookeeper.drop(STATE)
        next_controller(cluster, epoch=3_000_000 if number == 1 else None)
        cluster.wait_in_sync(TP, 1, 2, 3)
        assert cluster.state(TP).leader_epoch > leader_epoch
        leader_epoch = cluster.state(TP).leader_epoch
        assert cluster.produced(TP, b"another") == number
    cluster.wait_in_sync(TP, 1, 2, 3)
    for broker in cluster.brokers:
        assert broker.logs.logs[TP].log_end_offset == 3
