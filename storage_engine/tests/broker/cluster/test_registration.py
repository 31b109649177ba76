"""A broker's registration when ZooKeeper's answers or its session are lost: R-CTL4."""

import pytest

from storage_engine.broker.cluster.registration import BrokerIdInUseError, Registration
from storage_engine.core.ids import BrokerEpoch, BrokerId
from storage_engine.core.ports import ZkOp, ZkOpKind
from storage_engine.tests.zookeeper.fake_metadata_store import FakeMetadataStore, FakeZooKeeper
from storage_engine.tests.zookeeper.test_controller_election import FixedClock, HandScheduler
from storage_engine.zookeeper.znodes import BrokerIdZNode

PATH = BrokerIdZNode.path(1)


class Broker:
    """One broker that registers, and what it hears."""

    def __init__(self, server: FakeZooKeeper) -> None:
        self.server = server
        self.store = FakeMetadataStore(server)
        self.scheduler = HandScheduler()
        self.registered: list[BrokerEpoch] = []
        self.refused: list[BrokerIdInUseError] = []
        self.lost = 0
        self.registration = Registration(
            BrokerIdZNode(broker_id=BrokerId(1), host="h", port=1, endpoints=()),
            metadata_store=self.store,
            scheduler=self.scheduler,
            clock=FixedClock(),
            session_timeout_ms=6_000,
        )

    def start(self) -> None:
        self.registration.start(
            on_registered=self.registered.append,
            on_refused=self.refused.append,
            on_lost=self._on_lost,
        )

    def _on_lost(self) -> None:
        self.lost += 1

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.server.queue:
                self.server.queue.popleft()()

    def settle(self) -> None:
        for _ in range(3):
            self.server.run()
            self.scheduler.run_due()
        self.server.run()


@pytest.mark.parametrize("what", ["lose_answers", "lose_requests"])
@pytest.mark.parametrize("nth", range(3))
def test_a_lost_answer_anywhere_delays_the_registration_only(what: str, nth: int) -> None:
    broker = Broker(FakeZooKeeper())
    broker.start()
    broker.run(2 * nth)
    setattr(broker.store, what, 1)
    broker.settle()
    node = broker.server.nodes[PATH]
    assert node.owner == broker.store.session_id
    assert broker.registered == [node.czxid] == [broker.registration.broker_epoch]
    # The node is still watched.
    broker.server.apply(_written_by_another(), 7)
    broker.settle()
    assert BrokerIdZNode.decode(1, broker.server.nodes[PATH].data).host == "h"


def _written_by_another() -> ZkOp:
    return ZkOp(kind=ZkOpKind.SET, path=PATH, data=b"{}")


@pytest.mark.parametrize("nth", range(8))
def test_a_session_lost_at_any_step_leads_to_another_incarnation(nth: int) -> None:
    broker = Broker(FakeZooKeeper())
    broker.start()
    broker.run(nth)
    broker.store.expire()
    broker.store.reconnect()
    broker.settle()
    node = broker.server.nodes[PATH]
    assert node.owner == broker.store.session_id
    assert broker.registered[-1] == node.czxid == broker.registration.broker_epoch
    assert len(set(broker.registered)) == len(broker.registered)
    assert broker.refused == []
    assert broker.lost == 1


def test_a_broker_that_has_closed_registers_no_more() -> None:
    broker = Broker(FakeZooKeeper())
    broker.start()
    broker.registration.close()
    broker.settle()
    assert broker.registered == []
