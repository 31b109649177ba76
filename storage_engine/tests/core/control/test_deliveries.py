"""Orders of the controller to brokers, and reports of brokers on replicas that they can't serve."""

from storage_engine.core.control.controller_events import (
    BalanceChecked,
    BrokerReportsFailures,
    BrokersChanged,
    DeleteTopicNodes,
    Deliver,
    DeliveryFailed,
    DeliveryMade,
    Loaded,
    ReplicasFailed,
    StatesRead,
    TopicDeletionRequested,
)
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    TopicPartition,
)
from storage_engine.tests.core.control.controller_bench import TP, Driven, brokers, running, state

# --- deliveries ---


def test_one_delivery_to_a_broker_is_under_way_and_the_rest_collapses():
    driven = running()
    driven.step(StatesRead(states={TP: state(1, 1, 2, version=6)}))
    (first,) = [e for e in driven.deliveries if e.broker == 2]
    for version in (7, 8, 9):
        driven.step(StatesRead(states={TP: state(1, 1, 3, version=version)}))
        assert [e for e in driven.of(Deliver) if e.broker == 2] == []
    driven.step(DeliveryMade(broker=BrokerId(2), delivery=first.delivery))
    (rest,) = [e for e in driven.of(Deliver) if e.broker == 2]
    assert [item.state.partition_epoch for item in rest.delivery.metadata] == [9]


def test_what_was_not_delivered_is_sent_again_with_the_newest_contents():
    driven = running()
    driven.step(StatesRead(states={TP: state(1, 1, 2, version=6)}))
    (first,) = [e for e in driven.deliveries if e.broker == 2]
    driven.step(StatesRead(states={TP: state(1, 1, 3, version=7)}))
    driven.step(DeliveryFailed(broker=BrokerId(2), delivery=first.delivery))
    (again,) = [e for e in driven.of(Deliver) if e.broker == 2]
    assert again.delivery.number != first.delivery.number
    assert again.delivery.leadership[0].state.isr == (1, 3)


def test_a_full_delivery_that_failed_is_full_again():
    driven = Driven()
    driven.step(Loaded(brokers=brokers(1), topics={}, states={}))
    (first,) = driven.deliveries
    driven.step(DeliveryFailed(broker=BrokerId(1), delivery=first.delivery))
    assert driven.of(Deliver)[0].delivery.full


def test_an_answer_to_a_delivery_of_an_earlier_incarnation_counts_for_nothing():
    driven = Driven()
    driven.step(Loaded(brokers=brokers(1), topics={}, states={}))
    (first,) = driven.deliveries
    driven.step(BrokersChanged(brokers=brokers(1, b1=2)))
    (second,) = driven.of(Deliver)
    assert second.delivery.full
    assert second.delivery.broker_epoch == 2
    driven.step(DeliveryMade(broker=BrokerId(1), delivery=first.delivery))
    driven.step(DeliveryFailed(broker=BrokerId(1), delivery=second.delivery))
    assert driven.of(Deliver)[0].delivery.full


# --- replicas whose log dir failed ---


def failed_on(broker: int, *partitions: TopicPartition, epoch: int = 1) -> ReplicasFailed:
    return ReplicasFailed(
        broker=BrokerId(broker), broker_epoch=BrokerEpoch(epoch), partitions=partitions
    )


def test_a_leader_whose_folder_failed_is_replaced_and_leaves_the_isr():
    driven = running(known=state(1, 1, 2, 3))
    driven.step(failed_on(1, TP))
    (write,) = driven.writes()
    assert (write.state.leader, write.state.isr) == (2, (2, 3))


def test_a_follower_whose_folder_failed_leaves_the_isr():
    driven = running(known=state(1, 1, 2, 3))
    driven.step(failed_on(3, TP))
    (write,) = driven.writes()
    assert (write.state.leader, write.state.isr) == (1, (1, 2))


def test_the_last_member_of_the_isr_stays_in_it_without_leading():
    driven = running(known=state(1, 1))
    driven.step(failed_on(1, TP))
    (write,) = driven.writes()
    assert (write.state.leader, write.state.isr) == (-1, (1,))


def test_what_an_earlier_incarnation_could_not_serve_counts_no_more():
    driven = running(known=state(1, 1, 2, 3))
    driven.step(failed_on(1, TP, epoch=0))
    assert driven.writes() == []
    driven.step(failed_on(1, TP))
    driven.answer()
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3, b1=2)))
    driven.answer()
    driven.step(BalanceChecked(percentage=0))
    assert not driven.core._cluster.partition(TP).failed


def test_a_broker_that_reports_failures_is_told_everything_again():
    driven = running(known=state(1, 1, 2, 3))
    driven.step(BrokerReportsFailures(broker=BrokerId(2)))
    (told,) = driven.deliver_all()
    assert (told.broker, told.delivery.full) == (2, True)


def test_failed_replicas_are_told_as_offline_and_not_deleted_yet():
    driven = running(known=state(1, 1, 2, 3))
    driven.step(failed_on(3, TP))
    driven.answer()
    made = driven.deliver_all()
    assert {item.failed for effect in made for item in effect.delivery.metadata} == {(3,)}
    driven.step(TopicDeletionRequested(topics=("t",)))
    stops = {effect.broker: effect.delivery.stop for effect in driven.deliver_all()}
    assert stops == {1: (TP,), 2: (TP,), 3: ()}
    assert driven.of(DeleteTopicNodes) == []
