"""Brokers agree on the cluster's id, whoever begins first and whatever ZooKeeper does not
answer."""

import pytest

from simulation.world.clock import ProcessLoop
from simulation.world.zookeeper import SimulatedZooKeeper
from storage_engine.broker.cluster.cluster_id import agree_on_cluster_id
from storage_engine.core.errors import HeadraceError
from storage_engine.core.features import NEWEST_LEVELS
from storage_engine.tests.zookeeper.lossy_session import (
    ROUND_TRIP_MS,
    LossySession,
    new_server,
    settle,
)
from storage_engine.zookeeper.znodes.cluster_znodes import (
    ClusterIdZNode,
    ControllerEpochZNode,
    FeatureZNode,
)
from storage_engine.zookeeper.znodes.topic_znodes import PERSISTENT_PATHS


class Broker:
    """One broker that asks for the id, and what it hears."""

    def __init__(self, server: SimulatedZooKeeper) -> None:
        self.store = LossySession(server, ProcessLoop(server.loop))
        self.known: list[str] = []
        self.failures: list[str] = []

    def ask(self) -> None:
        agree_on_cluster_id(self.store, on_known=self.known.append, on_failed=self._failed)

    def _failed(self, failure: HeadraceError) -> None:
        self.failures.append(str(failure))


def test_brokers_that_begin_together_have_one_id_and_all_parents_are_there() -> None:
    server = new_server()
    brokers = [Broker(server) for _ in range(3)]
    for broker in brokers:
        broker.ask()
    settle(server)
    late = Broker(server)
    late.ask()
    settle(server)
    assert [len(broker.known) for broker in (*brokers, late)] == [1] * 4
    assert len({broker.known[0] for broker in (*brokers, late)}) == 1
    assert set(PERSISTENT_PATHS) <= server.nodes.keys()


@pytest.mark.parametrize(
    ("after_ms", "path"),
    [(0, PERSISTENT_PATHS[0]), (ROUND_TRIP_MS, "create /cluster/id"), (2 * ROUND_TRIP_MS, "read")],
)
def test_a_broker_that_zookeeper_leaves_without_an_answer_fails_once_and_names_the_path(
    after_ms: int, path: str
) -> None:
    server = new_server()
    broker = Broker(server)
    broker.ask()
    server.loop.run_for(after_ms)
    broker.store.lose_answer = True
    settle(server)
    (failure,) = broker.failures
    assert path in failure and broker.known == []
    # Another try takes up what the first one made.
    broker.ask()
    settle(server)
    node = ClusterIdZNode.decode(server.nodes[ClusterIdZNode.PATH].data)
    assert broker.known == [node.cluster_id]


def test_an_id_that_can_not_be_read_is_left_as_it_is() -> None:
    server = new_server()
    server.make_parents(ClusterIdZNode.PATH)
    server.put(ClusterIdZNode.PATH, b"garbage")
    broker = Broker(server)
    broker.ask()
    settle(server)
    assert len(broker.failures) == 1 and broker.known == []
    assert server.nodes[ClusterIdZNode.PATH].data == b"garbage"


def first_release_begins(server: SimulatedZooKeeper) -> None:
    """What a broker of release 0.1.0 makes first."""
    server.make_parents(ClusterIdZNode.PATH)
    server.put(ClusterIdZNode.PATH, ClusterIdZNode(cluster_id="old").encode())


def levels_in(server: SimulatedZooKeeper) -> dict[str, int] | None:
    data = server.data(FeatureZNode.PATH)
    return None if data is None else dict(FeatureZNode.decode(data).levels)


def test_a_cluster_that_this_version_makes_begins_at_the_newest_levels() -> None:
    server = new_server()
    for broker in (Broker(server), Broker(server)):
        broker.ask()
    settle(server)
    assert levels_in(server) == NEWEST_LEVELS
    assert server.nodes[FeatureZNode.PATH].version == 0


def test_a_cluster_that_an_earlier_release_has_made_is_left_as_it_is() -> None:
    server = new_server()
    first_release_begins(server)
    broker = Broker(server)
    broker.ask()
    settle(server)
    assert broker.known == ["old"]
    assert levels_in(server) is None


@pytest.mark.parametrize("after_ms", range(0, 8 * ROUND_TRIP_MS))
def test_an_earlier_release_that_begins_at_the_same_time_decides_it_or_comes_too_late(
    after_ms: int,
) -> None:
    """Its creation of the id succeeds before our transaction, or not at all."""
    server = new_server()
    broker = Broker(server)
    broker.ask()
    server.loop.run_for(after_ms)
    is_ours = ClusterIdZNode.PATH in server.nodes
    if not is_ours:
        first_release_begins(server)
    settle(server)
    assert (broker.known == ["old"]) is not is_ours
    assert levels_in(server) == (NEWEST_LEVELS if is_ours else None)


def test_a_cluster_that_has_lost_its_id_is_not_taken_for_a_new_one() -> None:
    server = new_server()
    server.put(ControllerEpochZNode.PATH, b"7")
    broker = Broker(server)
    broker.ask()
    settle(server)
    assert len(broker.known) == 1
    assert levels_in(server) is None
    assert server.data(ControllerEpochZNode.PATH) == b"7"


@pytest.mark.parametrize("what", ["lose_answer", "lose_request"])
def test_a_cluster_whose_making_was_not_answered_is_wholly_made_or_not_at_all(what: str) -> None:
    server = new_server()
    broker = Broker(server)
    broker.ask()
    server.loop.run_for(ROUND_TRIP_MS)
    setattr(broker.store, what, True)
    settle(server)
    assert len(broker.failures) == 1
    made = ClusterIdZNode.PATH in server.nodes
    assert made is (what == "lose_answer")
    assert levels_in(server) == (NEWEST_LEVELS if made else None)
    broker.ask()
    settle(server)
    assert levels_in(server) == NEWEST_LEVELS


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            FeatureZNode(levels={"later.version": 1}).encode(),
            "uses later.version at level 1, and this version supports level 0 only",
        ),
        (b"garbage", "write there what it held before"),
    ],
)
def test_a_broker_that_can_not_use_the_levels_is_refused_before_it_opens_its_logs(
    data: bytes, said: str
) -> None:
    server = new_server()
    first_release_begins(server)
    server.put(FeatureZNode.PATH, data)
    broker = Broker(server)
    broker.ask()
    settle(server)
    (failure,) = broker.failures
    assert said in failure
    assert "\n" not in failure
    assert broker.known == []
    assert server.data(FeatureZNode.PATH) == data
