"""A broker's registration when ZooKeeper's answers or its session are lost: R-CTL4."""

import pytest

from simulation.world.clock import ProcessLoop
from storage_engine.broker.cluster.registration import BrokerIdInUseError, Registration
from storage_engine.core.ids import BrokerEpoch, BrokerId
from storage_engine.core.ports import ZkOp, ZkOpKind
from storage_engine.tests.zookeeper.lossy_session import (
    ROUND_TRIP_MS,
    TIMEOUT_MS,
    LossySession,
    new_server,
    pause,
)
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode

PATH = BrokerIdZNode.path(1)


class Broker:
    """One broker that registers, and what it hears."""

    def __init__(self) -> None:
        self.server = new_server()
        process = ProcessLoop(self.server.loop)
        self.store = LossySession(self.server, process)
        self.registered: list[BrokerEpoch] = []
        self.refused: list[BrokerIdInUseError] = []
        self.lost = 0
        self.registration = Registration(
            BrokerIdZNode(broker_id=BrokerId(1), host="h", port=1, endpoints=()),
            metadata_store=self.store,
            scheduler=process,
            clock=process,
            session_timeout_ms=TIMEOUT_MS,
        )

    def start(self) -> None:
        self.registration.start(
            on_registered=self.registered.append,
            on_refused=self.refused.append,
            on_lost=self._on_lost,
        )

    def _on_lost(self) -> None:
        self.lost += 1


@pytest.mark.parametrize("what", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("nth", range(3))
def test_a_lost_answer_anywhere_delays_the_registration_only(what: str, nth: int) -> None:
    broker = Broker()
    broker.start()
    broker.server.loop.run_for(nth * ROUND_TRIP_MS)
    setattr(broker.store, what, True)
    pause(broker.server)
    node = broker.server.nodes[PATH]
    assert node.owner == broker.store.session_id
    assert broker.registered == [node.czxid] == [broker.registration.broker_epoch]
    # The node is still watched.
    broker.server.apply(_written_by_another(), 7)
    pause(broker.server)
    assert BrokerIdZNode.decode(1, broker.server.nodes[PATH].data).host == "h"


def _written_by_another() -> ZkOp:
    return ZkOp(kind=ZkOpKind.SET, path=PATH, data=b"{}")


@pytest.mark.parametrize("nth", range(8))
def test_a_session_lost_at_any_step_leads_to_another_incarnation(nth: int) -> None:
    broker = Broker()
    broker.start()
    broker.server.loop.run_for(nth)
    broker.store.expire_and_reconnect()
    pause(broker.server)
    node = broker.server.nodes[PATH]
    assert node.owner == broker.store.session_id
    assert broker.registered[-1] == node.czxid == broker.registration.broker_epoch
    assert len(set(broker.registered)) == len(broker.registered)
    assert broker.refused == []
    assert broker.lost == 1


def test_a_broker_that_has_closed_registers_no_more() -> None:
    broker = Broker()
    broker.start()
    broker.registration.close()
    pause(broker.server)
    assert broker.registered == []


@pytest.mark.parametrize("what", ["lose_answer", "lose_request", None])
@pytest.mark.parametrize("nth", range(6))
def test_a_cordon_is_registered_by_the_same_incarnation(what: str | None, nth: int, caplog) -> None:
    """Whenever it comes, and whatever gets lost on the way."""
    broker = Broker()
    broker.start()
    broker.server.loop.run_for(nth * ROUND_TRIP_MS)
    broker.registration.set_cordoned(True)
    if what is not None:
        setattr(broker.store, what, True)
    pause(broker.server)
    node = broker.server.nodes[PATH]
    assert BrokerIdZNode.decode(1, node.data).is_cordoned
    assert broker.registered == [node.czxid]
    broker.registration.set_cordoned(False)
    pause(broker.server)
    assert not BrokerIdZNode.decode(1, broker.server.nodes[PATH].data).is_cordoned
    assert broker.registered == [node.czxid]
    assert broker.lost == 0
    assert not [message for message in caplog.messages if "restored" in message]


def test_a_cordon_outlives_the_session() -> None:
    broker = Broker()
    broker.start()
    pause(broker.server)
    broker.registration.set_cordoned(True)
    broker.store.expire_and_reconnect()
    pause(broker.server)
    assert len(broker.registered) == 2
    assert BrokerIdZNode.decode(1, broker.server.nodes[PATH].data).is_cordoned
