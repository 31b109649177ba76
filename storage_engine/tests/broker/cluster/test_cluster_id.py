"""Brokers agree on the cluster's id, whoever begins first and whatever ZooKeeper does not
answer."""

import pytest

from simulation.world.clock import ProcessLoop
from simulation.world.zookeeper import SimulatedZooKeeper
from storage_engine.broker.cluster.cluster_id import agree_on_cluster_id
from storage_engine.core.errors import HeadraceError
from storage_engine.tests.zookeeper.lossy_session import (
    ROUND_TRIP_MS,
    LossySession,
    new_server,
    settle,
)
from storage_engine.zookeeper.znodes.cluster_znodes import ClusterIdZNode
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
