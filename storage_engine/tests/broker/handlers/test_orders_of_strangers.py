"""What a client can't do in the name of a broker: give orders as the controller, end transactions
as a coordinator, or say what a follower holds. Source: R-CTL1, R-CTL3, R-CTL4, R-REP2."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.cluster.order_gate import MAX_CONNECTIONS, OrderGate
from storage_engine.broker.cluster.registration import UNREGISTERED, leaving
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
)
from storage_engine.core.ports import ZkReply, ZkStat, ZkStatus
from storage_engine.protocol.apis import (
    controlled_shutdown,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import FetchPartition, FetchRequest
from storage_engine.protocol.messages import write_txn_markers
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.transactions.test_transactions import aborted, log_of, settle
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode, ControllerZNode

TP = TopicPartition("t", 0)
HIGHEST = ControllerEpoch(2**31 - 1)
_Marker = write_txn_markers.WriteTxnMarkersRequest.WritableTxnMarker


cluster = cluster_fixture(
    "t",
    has_record=True,
    transaction_state_log_num_partitions="1",
    min_insync_replicas="2",
    auto_leader_rebalance_enable="false",
)


# --- the controller's orders ---


def stop(**head: Any) -> tuple[Any, Any]:
    partition = stop_replica.StopReplicaPartition(
        topic="t", partition=0, leader_epoch=LeaderEpoch(-1), delete=True
    )
    return stop_replica.API, stop_replica.StopReplicaRequest(partitions=[partition], **head)


def lead(**head: Any) -> tuple[Any, Any]:
    """Nothing, so that the broker stops all that it has."""
    return leader_and_isr.API, leader_and_isr.LeaderAndIsrRequest(partitions=[], full=True, **head)


def tell(**head: Any) -> tuple[Any, Any]:
    return update_metadata.API, update_metadata.UpdateMetadataRequest(
        brokers=[], partitions=[], removed_topics=["t"], full=True, **head
    )


def order_all(cluster: SimulatedCluster, order: Callable[..., Any], **head: Any) -> set[ErrorCode]:
    """The answers of all brokers."""
    codes = set()
    for broker in cluster.brokers:
        own = {"broker_epoch": broker.broker_epoch, "order_number": 1, **head}
        spec, request = order(**own)
        codes.add(ErrorCode.of(cluster.answer(cluster.ask(broker.id, spec, 0, request)).error_code))
    return codes


def nothing_has_happened(cluster: SimulatedCluster) -> None:
    """Neither now, nor when the controller that is one gives its next orders."""
    cluster.loop.run_for(1000)
    assert all(broker.replicas.get(TP) is not None for broker in cluster.brokers)
    assert all("t" in broker.metadata for broker in cluster.brokers)
    controller = cluster.controller
    assert cluster.create_topic("next").error_code == 0
    assert cluster.produced_when_there(TopicPartition("next", 0), b"x") == 0
    assert cluster.controller is controller
    assert set(cluster.state(TP).isr) == {1, 2, 3}


@pytest.mark.parametrize("order", [stop, lead, tell])
def test_an_order_of_an_epoch_that_zookeeper_does_not_name_is_refused(cluster, order):
    controller_id = cluster.controller.id
    codes = order_all(cluster, order, controller_id=controller_id, controller_epoch=HIGHEST)
    assert codes == {ErrorCode.REQUEST_TIMED_OUT}
    nothing_has_happened(cluster)


@pytest.mark.parametrize("order", [stop, lead, tell])
def test_an_order_of_a_broker_that_is_not_the_controller_is_refused(cluster, order):
    epoch = int(cluster.zookeeper.data(ControllerEpochZNode.PATH))
    other = next(b.id for b in cluster.brokers if b is not cluster.controller)
    codes = order_all(cluster, order, controller_id=other, controller_epoch=epoch)
    assert codes == {ErrorCode.STALE_CONTROLLER_EPOCH}
    nothing_has_happened(cluster)


@pytest.mark.parametrize("order", [stop, lead, tell])
@pytest.mark.parametrize("broker_epoch", [-1, 1, 2**62])
def test_an_order_for_another_incarnation_than_the_present_one_is_refused(
    cluster, order, broker_epoch
):
    epoch = int(cluster.zookeeper.data(ControllerEpochZNode.PATH))
    codes = order_all(
        cluster,
        order,
        controller_id=cluster.controller.id,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
    )
    assert codes == {ErrorCode.STALE_BROKER_EPOCH}
    nothing_has_happened(cluster)


def test_a_controlled_shutdown_of_another_incarnation_is_refused(cluster):
    for broker_id, epoch in ((1, -1), (1, 2**62), (77, 1), (-1, -1)):
        request = controlled_shutdown.ControlledShutdownRequest(
            broker_id=BrokerId(broker_id), broker_epoch=BrokerEpoch(epoch)
        )
        asked = cluster.ask(cluster.controller.id, controlled_shutdown.API, 0, request)
        assert cluster.answer(asked).error_code == ErrorCode.STALE_BROKER_EPOCH
    nothing_has_happened(cluster)


# --- the gate by itself ---


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


def test_orders_keep_their_order_while_zookeeper_is_asked():
    gate = Gate()
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


def test_an_order_that_came_while_zookeeper_was_asked_is_asked_about_again():
    """The answer may be older than the election of its sender."""
    gate = Gate()
    gate.order(1)
    gate.order(2, epoch=8)
    gate.zookeeper.asked.pop(0)()
    gate.zookeeper.epoch = b"8"
    gate.zookeeper.answer_all()
    assert gate.outcomes == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]
    gate.order(3)
    assert gate.outcomes[-1] == (3, ErrorCode.STALE_CONTROLLER_EPOCH)


def test_what_holds_when_an_order_comes_is_looked_at_again_after_the_wait():
    gate = Gate()
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
def test_a_controller_that_is_no_registered_incarnation_gives_no_orders(sessions, controller):
    gate = Gate()
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


def test_a_forged_number_holds_until_its_controller_connects_again():
    gate = Gate()
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


def test_forged_numbers_take_no_memory():
    gate = Gate()
    for number in range(1000):
        gate.order(2000 - number, connection=number)
    gate.zookeeper.answer_all()
    assert len(gate.gate.numbers._highest) == MAX_CONNECTIONS


def test_a_forged_order_number_shuts_no_controller_out(cluster):
    """All else that it says can be read in ZooKeeper."""
    gate = cluster[2].parts.cluster.order_gate
    spec, request = tell(
        controller_id=gate.controller_id,
        controller_epoch=gate.controller_epoch,
        broker_epoch=cluster[2].broker_epoch,
        order_number=2**63 - 1,
    )
    cluster.answer(cluster.ask(2, spec, 0, request))
    controller = cluster.controller
    assert cluster.create_topic("later").error_code == 0
    cluster.loop.run_until(lambda: "later" in cluster[2].metadata, limit_ms=10_000)
    assert cluster.controller is controller


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


# --- coordinators and followers ---


def test_a_marker_of_an_epoch_that_no_coordinator_has_ends_nothing(cluster):
    """The partition would remember that epoch, and refuse the true coordinator's marker for ever:
    the last stable offset would stay where it is."""
    producer = SimulatedProducer(cluster, "p")
    producer.init()
    producer.add(TP)
    producer.write(TP, b"open")
    topic = _Marker.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = _Marker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=2**31 - 1,
        transaction_version=0,
    )
    request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
    asked = cluster.ask(cluster.state(TP).leader, write_txn_markers.API, 1, request)
    (result,) = cluster.answer(asked).markers
    code = result.topics[0].partitions[0].error_code
    assert ErrorCode.of(code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert log_of(cluster, TP).last_stable_offset == 1
    producer.end(commits=True)
    settle(cluster, TP)
    assert log_of(cluster, TP).last_stable_offset == 3
    assert aborted(cluster, TP) == []


def follow(cluster: SimulatedCluster, leader: int, replica: int, incarnation: int) -> None:
    """A fetch in the name of a follower that holds everything."""
    end = cluster[leader].replicas.get(TP).log.log_end_offset
    wanted = FetchPartition("t", 0, end, 1000, -1, -1, 0)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        partitions=[wanted],
        replica_id=replica,
        replica_epoch=incarnation,
    )
    cluster.answer(cluster.ask(leader, FETCH, 12, request))


def test_who_is_not_the_registered_follower_has_nothing_acknowledged(cluster):
    leader = cluster.state(TP).leader
    followers = [broker for broker in cluster.brokers if broker.id != leader]
    for broker in followers:
        cluster.network.hold_up(broker.id, leader)
    cluster.loop.run_for(100)
    answers = cluster.produce(leader, TP, b"in one log only")
    cluster.loop.run_for(100)
    for broker in followers:
        own = broker.broker_epoch
        for incarnation in (-1, own - 1, own + 1, leaving(own) + 1, 0, 2**62):
            follow(cluster, leader, broker.id, incarnation)
    cluster.loop.run_for(100)
    assert answers == []
    assert cluster[leader].replicas.get(TP).high_watermark == 1
    cluster.network.heal()
    assert cluster.answer(answers).partitions[0].error_code == 0


def test_a_follower_that_is_leaving_still_counts(cluster):
    """It is in the ISR: nothing would be acknowledged until it has left it."""
    leader = cluster.state(TP).leader
    for broker in cluster.brokers:
        if broker.id != leader:
            broker.parts.cluster.registration.leave()
    answers = cluster.produce(leader, TP, b"second")
    assert cluster.answer(answers, limit_ms=2000).partitions[0].error_code == 0
