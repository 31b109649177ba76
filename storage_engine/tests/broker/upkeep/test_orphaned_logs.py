"""Logs of topics that went while their broker was away. Source: R-CTL6."""

from collections.abc import Iterator

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS, SimulatedBroker
from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_dir import STRAY_FOLDER_SUFFIX
from storage_engine.zookeeper.znodes.cluster_znodes import ClusterIdZNode
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

TP = TopicPartition("t", 0)


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    made = SimulatedCluster(
        tmp_path, 4, disk=lambda broker: SimulatedDisk(tmp_path / f"broker{broker}")
    )
    assert made.create_topic("t").error_code == 0
    assert made.produced(TP, b"first") == 0
    yield made
    made.close()


def replica(cluster: SimulatedCluster) -> SimulatedBroker:
    """One that is not the controller, and whose log is there."""
    return next(b for b in cluster.brokers if TP in b.logs.logs and b is not cluster.controller)


def put_aside(broker: SimulatedBroker) -> list[str]:
    return [n for n in broker.disk.list_names(broker.folder) if n.endswith(STRAY_FOLDER_SUFFIX)]


def lose_topic_while_away(cluster: SimulatedCluster, away: SimulatedBroker) -> None:
    """Its replica goes to the others and then the topic, so nobody waits for it."""
    away.kill()
    cluster.loop.run_for(SESSION_TIMEOUT_MS + 1000)
    others = [broker.id for broker in cluster.brokers if broker is not away]
    cluster.reassign(TP, others)
    cluster.wait_in_sync(TP, *others)
    cluster.loop.run_for(1000)
    deletion = cluster.answer(cluster.delete_topic("t"))
    assert deletion.responses[0].error_code == 0
    assert TopicZNode.path("t") not in cluster.zookeeper.nodes


def start_again(cluster: SimulatedCluster, broker: SimulatedBroker) -> None:
    broker.start()
    cluster.loop.run_until(lambda: len(broker.metadata.brokers) == 4)
    cluster.loop.run_for(1000)


def test_a_broker_that_missed_a_move_and_the_deletion_puts_its_log_aside(cluster):
    away = replica(cluster)
    lose_topic_while_away(cluster, away)
    start_again(cluster, away)
    assert TP not in away.logs.logs
    (name,) = put_aside(away)
    assert name.startswith("t-0.")


def test_a_deletion_that_the_power_took_back_is_made_good(cluster):
    broker = replica(cluster)
    broker.stop()
    broker.start()
    cluster.loop.run_for(SESSION_TIMEOUT_MS)
    assert cluster.answer(cluster.delete_topic("t")).responses[0].error_code == 0
    assert TP not in broker.logs.logs
    broker.kill()
    assert isinstance(broker.disk, SimulatedDisk)
    # Nothing was synced since: the old name is back.
    broker.disk.lose_power()
    assert "t-0" in broker.disk.list_names(broker.folder)
    start_again(cluster, broker)
    assert TP not in broker.logs.logs
    assert put_aside(broker)


def test_logs_stay_where_they_are_when_zookeeper_has_lost_the_cluster(cluster):
    away = replica(cluster)
    lose_topic_while_away(cluster, away)
    away.begin()
    cluster.loop.run_until(lambda: away.serving)
    cluster.zookeeper.drop(ClusterIdZNode.PATH)
    cluster.loop.run_until(lambda: len(away.metadata.brokers) == 4)
    cluster.loop.run_for(1000)
    assert TP in away.logs.logs
    assert put_aside(away) == []


def test_what_the_controller_can_not_read_is_no_stray(cluster):
    """All brokers are told everything by a new controller, which knows nothing of the topic."""
    data = cluster.zookeeper.data(TopicZNode.path("t"))
    assert data is not None
    cluster.zookeeper.put(TopicZNode.path("t"), b"{}")
    for broker in cluster.brokers:
        broker.kill()
    cluster.loop.run_for(SESSION_TIMEOUT_MS + 1000)
    for broker in cluster.brokers:
        start = broker.begin
        start()
    cluster.loop.run_for(SESSION_TIMEOUT_MS)
    holders = [broker for broker in cluster.brokers if TP in broker.logs.logs]
    assert len(holders) == 3
    assert all(put_aside(broker) == [] for broker in cluster.brokers)
