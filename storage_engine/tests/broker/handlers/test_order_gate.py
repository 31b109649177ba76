"""Orders are let through in their sequence, and only from the controller that ZooKeeper names."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from storage_engine.broker.cluster.order_gate import MAX_CONNECTIONS, OrderGate
from storage_engine.broker.cluster.registration import UNREGISTERED
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch
from storage_engine.core.ports import ZkReply, ZkStat, ZkStatus
from storage_engine.protocol.apis import stop_replica
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode, ControllerZNode


class ZooKeeper:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.epoch = b"7"
        self.controller = ControllerZNode(broker_id=BrokerId(2)).encode()
        self.sessions = {"/controller": 5, "/brokers/ids/2": 5}
        self.asked: list[Callable[[], None]] = []

    def get(self, path: str, on_reply: Callable[[ZkReply], None], watch: object = None) -> None:
        value = self.epoch if path == ControllerEpochZNode.PATH else self.controller
        self._answer(path, value, on_reply)

    def exists(self, path: str, on_reply: Callable[[ZkReply], None], watch: object = None) -> None:
        self._answer(path, None, on_reply)

    def _answer(self, path: str, value: Any, on_reply: Callable[[ZkReply], None]) -> None:
        stat = ZkStat(version=0, czxid=1, ephemeral_owner=self.sessions.get(path, 0))
        reply = ZkReply(status=ZkStatus.OK, data=value, stat=stat)
        self.asked.append(lambda: on_reply(reply))

    def answer_all(self) -> None:
        while self.asked:
            self.asked.pop(0)()


class Gate:
    """One with what became of each order."""

    def __init__(self) -> None:
        self.zookeeper = ZooKeeper()
        self.broker_epoch = BrokerEpoch(50)
        self.gate = OrderGate(self.zookeeper, lambda: self.broker_epoch)  # type: ignore[arg-type]
        self.outcomes: list[tuple[int, ErrorCode]] = []
        self.closed: list[int] = []

    def connection(self, number: int) -> Any:
        return SimpleNamespace(number=number, close=lambda _reason: self.closed.append(number))

    def order(self, number: int, epoch: int = 7, controller: int = 2, connection: int = 1) -> None:
        order = stop_replica.StopReplicaRequest(
            controller_id=BrokerId(controller),
            controller_epoch=ControllerEpoch(epoch),
            broker_epoch=BrokerEpoch(50),
            order_number=number,
            partitions=[],
        )
        self.gate.admit(
            order,
            self.connection(connection),
            lambda: self.outcomes.append((number, ErrorCode.NONE)),
            lambda code: self.outcomes.append((number, code)),
        )


@pytest.fixture
def gate() -> Gate:
    return Gate()


def test_orders_keep_their_order_while_zookeeper_is_asked(gate):
    gate.order(1)
    gate.order(2)
    gate.order(3, epoch=6)
    gate.order(4)
    assert gate.outcomes == []
    gate.zookeeper.answer_all()
    none, stale = ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH
    assert gate.outcomes == [(1, none), (2, none), (3, stale), (4, none)]
    gate.order(5)
    assert gate.outcomes[-1] == (5, none)
    assert gate.zookeeper.asked == []


def test_an_order_that_came_while_zookeeper_was_asked_is_asked_about_again(gate):
    """The answer may be older than the election of its sender."""
    gate.order(1)
    gate.order(2, epoch=8)
    gate.zookeeper.asked.pop(0)()
    gate.zookeeper.epoch = b"8"
    gate.zookeeper.answer_all()
    assert gate.outcomes == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]
    gate.order(3)
    assert gate.outcomes[-1] == (3, ErrorCode.STALE_CONTROLLER_EPOCH)


def test_what_holds_when_an_order_comes_is_looked_at_again_after_the_wait(gate):
    gate.order(1)
    gate.order(2)
    gate.broker_epoch = BrokerEpoch(51)
    gate.zookeeper.answer_all()
    assert gate.outcomes == [(n, ErrorCode.STALE_BROKER_EPOCH) for n in (1, 2)]
    gate.broker_epoch = UNREGISTERED
    gate.order(3)
    assert gate.outcomes[-1] == (3, ErrorCode.STALE_BROKER_EPOCH)


@pytest.mark.parametrize(
    ("sessions", "controller"),
    [
        ({"/controller": 5, "/brokers/ids/2": 6}, None),
        ({"/controller": 5}, None),
        ({"/controller": 0, "/brokers/ids/2": 0}, None),
        ({"/controller": 5, "/brokers/ids/2": 5}, b"garbage"),
    ],
)
def test_a_controller_that_is_no_registered_incarnation_gives_no_orders(gate, sessions, controller):
    gate.zookeeper.sessions = sessions
    gate.zookeeper.controller = controller or gate.zookeeper.controller
    gate.order(1)
    gate.zookeeper.answer_all()
    assert gate.outcomes == [(1, ErrorCode.REQUEST_TIMED_OUT)]
    assert gate.gate.controller_epoch == -1


def test_an_order_of_a_connection_that_was_given_up_is_refused_and_the_connection_closed():
    gate, timed_out = Gate(), ErrorCode.REQUEST_TIMED_OUT
    gate.order(5, connection=1)
    gate.order(6, connection=2)
    gate.order(5, connection=1)
    gate.order(6, connection=2)
    gate.order(7, connection=2)
    gate.order(6, connection=0)
    gate.zookeeper.answer_all()
    assert [code for _, code in gate.outcomes] == [
        *(ErrorCode.NONE, ErrorCode.NONE, timed_out, ErrorCode.NONE, ErrorCode.NONE, timed_out)
    ]
    assert gate.closed == [1, 0]


def test_what_an_earlier_connection_brings_late_is_refused_whoever_came_between():
    """A forged low number on the newest of all does not let the old order in."""
    gate, timed_out = Gate(), ErrorCode.REQUEST_TIMED_OUT
    gate.order(6, connection=2)
    gate.order(0, connection=3)
    gate.order(5, connection=1)
    gate.order(7, connection=2)
    gate.zookeeper.answer_all()
    assert [code for _, code in gate.outcomes] == [
        *(ErrorCode.NONE, ErrorCode.NONE, timed_out, ErrorCode.NONE)
    ]


def test_a_forged_number_holds_until_its_controller_connects_again(gate):
    gate.order(5, connection=1)
    gate.order(2**63 - 1, connection=2)
    gate.order(6, connection=1)
    gate.order(6, connection=3)
    gate.order(5, connection=1)
    gate.zookeeper.answer_all()
    codes = [code for _, code in gate.outcomes]
    none, timed_out = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT
    assert codes == [none, none, timed_out, none, timed_out]
    assert gate.closed == [1, 1]


def test_forged_numbers_take_no_memory(gate):
    for number in range(1000):
        gate.order(2000 - number, connection=number)
    gate.zookeeper.answer_all()
    assert len(gate.gate.numbers._highest) == MAX_CONNECTIONS


def test_one_order_that_fails_keeps_no_other_waiting(monkeypatch):
    monkeypatch.setattr("storage_engine.broker.unexpected.is_fatal", False)
    gate = Gate()
    order = stop_replica.StopReplicaRequest(
        controller_id=BrokerId(2),
        controller_epoch=ControllerEpoch(7),
        broker_epoch=BrokerEpoch(50),
        partitions=[],
    )

    def fail() -> None:
        raise ValueError("broken")

    gate.gate.admit(order, gate.connection(1), fail, lambda _code: None)
    gate.order(1)
    gate.zookeeper.answer_all()
    assert gate.outcomes == [(1, ErrorCode.NONE)]
