"""A replica that is stopped and told to go on, in one life of its broker. Source: R-REP10."""

from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerZNode

TP = TopicPartition("t", 0)


cluster = cluster_fixture("t", simulated_disk=True, auto_leader_rebalance_enable="false")


def test_a_replica_that_was_stopped_knows_how_far_it_was_committed(cluster):
    """Its broker began with nothing; it may lead before it has fetched again."""
    assert cluster.produced(TP, b"first") == 0
    cluster.wait_in_sync(TP, 1, 2, 3)
    leader = cluster.state(TP).leader
    follower = next(b for b in cluster.brokers if b.id != leader and b is not cluster.controller)
    replicas = follower.replicas
    cluster.loop.run_until(lambda: replicas.get(TP).high_watermark == 1)
    # What it fetches from now on does not arrive.
    cluster.network.hold_up(follower.id, leader)
    replicas.stop(TP, delete=False)
    assert replicas.get(TP) is None
    cluster.zookeeper.drop(ControllerZNode.PATH)
    cluster.loop.run_until(lambda: replicas.get(TP) is not None)
    assert replicas.get(TP).high_watermark == 1
