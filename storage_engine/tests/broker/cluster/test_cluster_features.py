"""A broker's view of the levels of features, whatever others and ZooKeeper do meanwhile."""

import pytest

from simulation.world.clock import ProcessLoop
from simulation.world.zookeeper import SimulatedZooKeeper
from storage_engine.broker.cluster.cluster_features import ClusterFeatures
from storage_engine.core.errors import HeadraceError
from storage_engine.core.features import FIRST_FEATURES, GROUP_VERSION
from storage_engine.tests.zookeeper.lossy_session import (
    LossySession,
    new_server,
    pause,
    settle,
)
from storage_engine.zookeeper.znodes.cluster_znodes import FeatureZNode

PATH = FeatureZNode.PATH


class Broker:
    """One broker that reads the levels, and what it hears."""

    def __init__(self, server: SimulatedZooKeeper) -> None:
        process = ProcessLoop(server.loop)
        self.store = LossySession(server, process)
        self.features = ClusterFeatures(self.store, process)
        self.known = 0
        self.heard: list[int] = []
        self.failures: list[str] = []
        self.features.on_change(lambda: self.heard.append(self.features.level(GROUP_VERSION)))

    def start(self) -> None:
        self.features.when_known(self._on_known, self._on_refused)

    def _on_known(self) -> None:
        self.known += 1

    def _on_refused(self, failure: HeadraceError) -> None:
        self.failures.append(str(failure))


@pytest.fixture
def server() -> SimulatedZooKeeper:
    return new_server()


@pytest.fixture
def broker(server: SimulatedZooKeeper) -> Broker:
    return Broker(server)


def put(server: SimulatedZooKeeper, **levels: int) -> None:
    named = {name.replace("_", "."): level for name, level in levels.items()}
    server.put(PATH, FeatureZNode(levels={"transaction.version": 2, **named}).encode())


def test_a_cluster_without_the_node_uses_the_lowest_levels(server, broker):
    broker.start()
    settle(server)
    assert broker.known == 1
    assert broker.features.finalized == FIRST_FEATURES


def test_the_levels_are_those_of_the_node_and_their_epoch_is_its_version(server, broker):
    put(server)
    put(server, group_version=1)
    broker.start()
    settle(server)
    assert broker.features.level(GROUP_VERSION) == 1
    assert broker.features.level("what nobody knows") == 0
    assert broker.features.finalized.epoch == server.nodes[PATH].version == 1


def test_changes_are_heard_and_told_also_the_creation_of_the_node(server, broker):
    broker.start()
    settle(server)
    for level in (0, 1, 0):
        put(server, group_version=level)
        settle(server)
        assert broker.features.level(GROUP_VERSION) == level
    # A node with the levels that counted without it changes nothing.
    assert broker.heard[-2:] == [1, 0]
    assert broker.known == 1


def test_who_asks_later_is_answered_at_once(server, broker):
    broker.start()
    settle(server)
    broker.start()
    assert broker.known == 2


def test_a_change_during_a_lost_session_is_read_afterwards(server, broker):
    put(server)
    broker.start()
    settle(server)
    broker.store.cut_off()
    put(server, group_version=1)
    pause(server)
    broker.store.reconnect()
    pause(server)
    assert broker.features.level(GROUP_VERSION) == 1


@pytest.mark.parametrize("what", ["lose_answer", "lose_request"])
def test_a_read_without_an_answer_is_repeated(server, broker, what):
    put(server, group_version=1)
    broker.start()
    setattr(broker.store, what, True)
    pause(server)
    assert (broker.known, broker.features.level(GROUP_VERSION)) == (1, 1)


def test_a_refresh_is_over_when_the_levels_are_read(server, broker):
    broker.start()
    settle(server)
    broker.store.cut_off()
    put(server, group_version=1)
    done: list[None] = []
    broker.features.refresh(done.append)
    settle(server)
    assert done == []
    broker.store.reconnect()
    pause(server)
    assert done == [None]
    assert broker.features.level(GROUP_VERSION) == 1


@pytest.mark.parametrize("data", [b"garbage", b"", None])
def test_a_node_that_others_remove_or_spoil_changes_nothing(server, broker, data):
    put(server, group_version=1)
    broker.start()
    settle(server)
    if data is None:
        server.drop(PATH)
    else:
        server.put(PATH, data)
    settle(server)
    assert broker.features.level(GROUP_VERSION) == 1
    put(server)
    settle(server)
    assert broker.features.level(GROUP_VERSION) == 0


def test_levels_that_can_not_be_read_at_the_start_are_waited_for(server, broker):
    server.put(PATH, b"garbage")
    broker.start()
    pause(server)
    assert broker.known == 0
    put(server, group_version=1)
    pause(server)
    assert (broker.known, broker.features.level(GROUP_VERSION)) == (1, 1)


def test_levels_that_this_version_does_not_support_are_never_used(server, broker):
    broker.start()
    settle(server)
    put(server, group_version=7)
    settle(server)
    assert broker.features.level(GROUP_VERSION) == 0
    assert len(broker.failures) == 1
    assert "uses group.version at level 7" in broker.failures[0]


def test_nothing_is_heard_after_the_end(server, broker):
    broker.start()
    settle(server)
    broker.features.close()
    put(server, group_version=1)
    settle(server)
    assert broker.heard == []
