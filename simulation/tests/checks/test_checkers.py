"""What the simulation's checker knows of a broker that lost its power and is killed again before it
has heard that it is registered. Found by seed 960476."""

from collections.abc import Iterator

import pytest

from simulation.checks.checkers import Checker
from simulation.checks.trace import Trace
from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode

TP = TopicPartition("t", 0)
HEARD_MS = 500
"""By then the others know of a registration."""


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    made = SimulatedCluster(
        tmp_path, disk=lambda broker: SimulatedDisk(tmp_path / f"broker{broker}")
    )
    yield made
    made.close()


@pytest.fixture
def checker(cluster) -> Checker:
    made = Checker(cluster, Trace(cluster.loop))
    for broker in cluster.brokers:
        made.started(broker)
    cluster.loop.after_event = made.after_event
    cluster.zookeeper.on_write = made.on_zookeeper_write
    made.expect_topic("t", unclean=False, min_in_sync=1)
    return made


def registered(cluster: SimulatedCluster, checker: Checker, broker: int) -> None:
    """Started again, and registered a moment ago: the answer is under way."""
    cluster[broker].begin()
    checker.started(cluster[broker])
    path = BrokerIdZNode.path(broker)
    cluster.loop.run_until(lambda: path in cluster.zookeeper.nodes)


def lose_power(cluster: SimulatedCluster, checker: Checker, broker: int) -> None:
    disk = cluster[broker].disk
    assert isinstance(disk, SimulatedDisk)
    cluster[broker].kill()
    disk.lose_power()
    checker.lost_power(cluster[broker])
    cluster.loop.run_for(SESSION_TIMEOUT_MS + 1000)


def test_who_never_heard_of_its_registration_has_held_nothing_since(cluster, checker):
    lose_power(cluster, checker, 3)
    registered(cluster, checker, 3)
    cluster[3].pause()
    cluster.loop.run_for(HEARD_MS)
    assert cluster.create_topic("t").error_code == 0
    assert checker.record(TP).cut == set(), "the controller has vouched for it"
    assert cluster[3].broker_epoch == -1
    cluster[3].kill(session_ends_at_once=True)
    registered(cluster, checker, 3)
    assert checker.record(TP).cut == {3}


def test_who_heard_of_its_registration_is_vouched_for_over_a_kill(cluster, checker):
    lose_power(cluster, checker, 3)
    registered(cluster, checker, 3)
    cluster.loop.run_for(HEARD_MS)
    assert cluster.create_topic("t").error_code == 0
    cluster.wait_in_sync(TP, 1, 2, 3)
    assert cluster[3].broker_epoch > 0
    cluster[3].kill(session_ends_at_once=True)
    registered(cluster, checker, 3)
    assert checker.record(TP).cut == set()
