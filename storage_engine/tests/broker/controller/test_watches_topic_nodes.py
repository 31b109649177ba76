"""A controller loads, and sees every topic, while other programs write the nodes of topics at any
moment, or its connection to ZooKeeper breaks. Source: R-CTL5, R-CTL10."""

import itertools
import json

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.controller.foreign_topics import (
    PATH,
    RECORDS,
    TP,
    cluster,
    holds_everything,
    next_controller,
    put,
    topic,
)
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

__all__ = ["cluster", "topic"]


@pytest.mark.parametrize("gap_ms", range(5))
def test_a_topic_that_is_enlarged_as_soon_as_it_is_created_has_all_its_leaders(cluster, gap_ms):
    def on_write(path: str, before: bytes | None, data: bytes | None) -> None:
        if path == PATH and before is None and data is not None:
            larger = json.loads(data)
            larger["partitions"] = {"0": [1, 2, 3], "1": [2, 3, 1]}
            cluster.loop.call_later(gap_ms, lambda: put(cluster, PATH, larger))

    cluster.zookeeper.on_write = on_write
    assert cluster.create_topic("t").error_code == 0
    cluster.zookeeper.on_write = None
    added = PartitionStateZNode.path("t", 1)
    cluster.loop.run_until(lambda: added in cluster.zookeeper.nodes, limit_ms=5000)
    for number in range(RECORDS):
        assert cluster.produced_when_there(TopicPartition("t", 1), b"r") == number
    holds_everything(cluster, TopicPartition("t", 1))


@pytest.mark.parametrize("period_ms", [2, 4, 8])
def test_a_controller_loads_while_a_topic_is_written_time_and_again(topic, period_ms):
    touching = True

    def touch() -> None:
        if touching:
            topic.zookeeper.put(PATH, topic.zookeeper.data(PATH))
            topic.loop.call_later(period_ms, touch)

    touch()
    topic.loop.run_for(100)
    next_controller(topic)
    assert topic.create_topic("other").error_code == 0
    touching = False
    holds_everything(topic)


@pytest.mark.parametrize("period_ms", [2, 4, 8])
def test_a_controller_loads_while_topics_are_made_one_after_another(topic, period_ms):
    made = itertools.count()
    is_making = True

    def make() -> None:
        if is_making:
            path = TopicZNode.path(f"made-{next(made)}")
            put(topic, path, {"version": 1, "partitions": {"0": [1, 2, 3]}})
            topic.loop.call_later(period_ms, make)

    old = topic.controller
    old.kill(session_ends_at_once=True)
    make()
    topic.loop.run_until(lambda: topic.controller not in (None, old), limit_ms=1000)
    is_making = False
    old.start()
    for number in range(next(made)):
        state = PartitionStateZNode.path(f"made-{number}", 0)
        topic.loop.run_until(lambda state=state: state in topic.zookeeper.nodes)
    holds_everything(topic)


DELAY_MS = 5
"""Each message to and from ZooKeeper takes so long."""


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
