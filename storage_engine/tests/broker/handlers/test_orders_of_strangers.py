"""What a client can't do in the name of a broker: give orders as the controller, end transactions
as a coordinator, or say what a follower holds. Source: R-CTL1, R-CTL3, R-CTL4, R-REP2."""

from collections.abc import Callable
from typing import Any

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.cluster.registration import leaving
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
)
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
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode

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
