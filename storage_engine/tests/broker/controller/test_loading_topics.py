"""A controller that loses its connection to ZooKeeper while it loads."""

from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerZNode

TP = TopicPartition("t", 0)
DELAY_MS = 5
"""Of each message to and from ZooKeeper."""


def test_a_controller_that_loads_over_a_lost_connection_stops_no_replica(tmp_path):
    """Topics are being read when the connection is lost: these reads are done again later, and the
    watches fire at once. A list that brings nothing new must not be taken for all there is, or
    brokers are told to stop everything."""
    cluster = SimulatedCluster(
        tmp_path,
        disk=lambda broker: SimulatedDisk(tmp_path / f"broker{broker}"),
        auto_leader_rebalance_enable="false",
    )
    assert cluster.create_topic("t").error_code == 0
    assert cluster.produced(TP, b"first") == 0
    cluster.wait_in_sync(TP, 1, 2, 3)
    before = {b.id: b.replicas.get(TP) for b in cluster.brokers}
    for broker in cluster.brokers:
        broker.session.delay_ms = lambda: DELAY_MS
    for after_ms in range(20, 100, DELAY_MS):
        cluster.zookeeper.drop(ControllerZNode.PATH)
        cluster.loop.run_for(after_ms)
        for broker in cluster.brokers:
            broker.session.cut_off()
            broker.session.reconnect()
        cluster.loop.run_until(lambda: cluster.controller is not None)
        cluster.loop.run_for(200)
        now = {b.id: b.replicas.get(TP) for b in cluster.brokers}
        assert now == before, f"lost {after_ms} ms after the change of the controller"
    cluster.close()
