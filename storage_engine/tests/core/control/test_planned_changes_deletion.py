"""Topics that are deleted, as the controller sees it. Source: R-CTL6."""

from uuid import UUID

import pytest

from storage_engine.core.control.cluster_state import TopicInfo
from storage_engine.core.control.controller_events import (
    AssignmentsWritten,
    BrokersChanged,
    DeleteTopicNodes,
    Deliver,
    DeliveryFailed,
    DeliveryMade,
    DropDeletionRequests,
    Loaded,
    ReadStates,
    ReplicasFailed,
    StatesRead,
    StatesWritten,
    TopicDeleted,
    TopicDeletionRequested,
    TopicsRead,
    WriteOutcome,
)
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
)
from storage_engine.tests.core.control.controller_bench import (
    TP,
    Driven,
    brokers,
    running,
    state,
    topic,
    with_assignment,
)


def test_a_topic_is_gone_when_all_its_replicas_are():
    driven = running()
    driven.step(TopicDeletionRequested(topics=("t",)))
    assert all(effect.delivery.stop == (TP,) for effect in driven.deliveries)
    assert all(effect.delivery.removed_topics == ("t",) for effect in driven.deliveries)
    for effect in driven.deliveries[:2]:
        driven.step(DeliveryMade(broker=effect.broker, delivery=effect.delivery))
    assert driven.of(DeleteTopicNodes) == []
    last = driven.deliveries[2]
    driven.step(DeliveryMade(broker=last.broker, delivery=last.delivery))
    assert driven.of(DeleteTopicNodes) == [DeleteTopicNodes(topic="t", partitions=(0,))]
    driven.step(TopicDeleted(topic="t"))
    assert driven.core.topic("t") is None
    assert driven.core.states() == {}


def test_a_deletion_waits_for_a_dead_broker_to_return():
    driven = running(live=(1, 2), known=state(1, 1, 2))
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.deliver_all()
    assert driven.of(DeleteTopicNodes) == []
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3)))
    (back,) = [e.delivery for e in driven.deliveries if e.broker == 3]
    assert back.stop == (TP,)
    assert back.leadership == ()
    driven.step(DeliveryMade(broker=BrokerId(3), delivery=back))
    assert driven.of(DeleteTopicNodes) != []


def test_who_held_a_replica_before_a_move_and_returns_during_the_deletion_deletes_it():
    """Nobody is told any more where the replicas of such a topic are (seed 548 of the random
    world)."""
    driven = running(live=(1, 2), known=state(1, 1, 2))
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.deliver_all()
    driven.step(BrokersChanged(brokers=brokers(1, 2, 4)))
    (back,) = [e.delivery for e in driven.deliveries if e.broker == 4]
    assert back.full
    assert back.stop == (TP,)


def test_a_deletion_waits_for_a_broker_without_a_replica_only_while_it_lives_and_can():
    for over in (
        BrokersChanged(brokers=brokers(1, 2, 3)),
        ReplicasFailed(broker=BrokerId(4), broker_epoch=BrokerEpoch(1), partitions=(TP,)),
    ):
        driven = running(live=(1, 2, 3, 4))
        driven.step(TopicDeletionRequested(topics=("t",)))
        (to_4,) = [effect for effect in driven.deliveries if effect.broker == 4]
        driven.deliveries.remove(to_4)
        assert to_4.delivery.stop == (TP,)
        driven.deliver_all()
        assert driven.last_of(DeleteTopicNodes) == []
        driven.step(over)
        assert driven.last_of(DeleteTopicNodes) != []
        # What returns now could meet a later topic of that name.
        driven.step(BrokersChanged(brokers=brokers(1, 2, 3)))
        driven.deliver_all()
        driven.step(BrokersChanged(brokers=brokers(1, 2, 3, b4=2) | brokers(4, b4=2)))
        assert all(e.delivery.stop == () for e in driven.deliveries)


def test_a_topic_in_deletion_is_not_elected_for():
    driven = running()
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    assert driven.writes() == []


def test_a_deletion_waits_for_a_write_under_way():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    writes = driven.writes()
    driven.deliver_all()
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.deliver_all()
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3)))
    driven.deliver_all()
    assert driven.of(DeleteTopicNodes) == []
    driven.step(
        StatesWritten(outcomes={w.partition: (WriteOutcome.ACCEPTED, w.state) for w in writes})
    )
    assert driven.of(DeleteTopicNodes) != []


@pytest.mark.parametrize("outcome", [WriteOutcome.CONFLICT, WriteOutcome.UNKNOWN])
def test_a_deletion_does_not_wait_for_a_state_that_can_not_be_read(outcome):
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    writes = driven.writes()
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3)))
    driven.deliver_all()
    assert driven.last_of(DeleteTopicNodes) == []
    driven.step(StatesWritten(outcomes={w.partition: (outcome, w.state) for w in writes}))
    assert driven.of(ReadStates) == []
    assert driven.of(DeleteTopicNodes) != []


def test_a_state_that_was_read_too_early_is_not_read_again_for_a_deletion():
    driven = running()
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.step(StatesRead(states={TP: state(1, 1, 2, 3, version=4)}))
    assert driven.of(ReadStates) == []
    driven.deliver_all()
    assert driven.last_of(DeleteTopicNodes) != []


def test_a_topic_that_changed_while_it_was_deleted_leaves_nothing_behind():
    driven = running(live=(1, 2, 3))
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.step(TopicsRead(topics={"t": topic("t", (1, 2, 3), (2, 3, 1))}))
    driven.deliver_all()
    driven.step(TopicDeleted(topic="t"))
    driven.step(BrokersChanged(brokers=brokers(1, 2)))
    assert driven.writes() == []


def test_a_move_that_is_written_while_the_topic_is_deleted_keeps_no_replica():
    """The deletion went on without a replica that the move was to remove, which led on with its
    files (seed 40080 of the random world)."""
    driven = Driven()
    towards = topic().assigned(0).towards((BrokerId(2), BrokerId(3)))
    moving = with_assignment(topic(), 0, towards)
    driven.step(Loaded(brokers=brokers(1, 2, 3), topics={"t": moving}, states={TP: state(2, 2, 3)}))
    driven.deliver_all()
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.step(AssignmentsWritten(topic="t", info=with_assignment(moving, 0, towards.finished())))
    (to_1,) = [effect for effect in driven.deliveries if effect.broker == 1]
    driven.step(DeliveryFailed(broker=to_1.broker, delivery=to_1.delivery))
    assert [e.delivery.stop for e in driven.of(Deliver)] == [(TP,)]


def test_a_topic_without_partitions_can_be_deleted():
    driven = Driven()
    empty = TopicInfo(topic="t", topic_id=UUID(int=1))
    driven.step(Loaded(brokers=brokers(1), topics={"t": empty}, states={}, deleting=("t",)))
    assert driven.of(DeleteTopicNodes) == [DeleteTopicNodes(topic="t", partitions=())]


def test_a_request_to_delete_an_unknown_topic_is_dropped():
    driven = running()
    driven.step(TopicDeletionRequested(topics=("t", "unknown")))
    assert driven.of(DropDeletionRequests) == [DropDeletionRequests(topics=("unknown",))]
    # One that is under way is left alone.
    driven.step(TopicDeletionRequested(topics=("t",)))
    assert driven.of(DropDeletionRequests) == []


def test_where_deletion_is_disabled_its_requests_are_dropped():
    driven = running(delete_topic_enable=False)
    driven.step(TopicDeletionRequested(topics=("t",)))
    assert driven.of(DropDeletionRequests) == [DropDeletionRequests(topics=("t",))]
    assert driven.of(Deliver) == []


def test_a_new_controller_goes_on_with_deletions():
    driven = Driven()
    driven.step(
        Loaded(
            brokers=brokers(1, 2, 3),
            topics={"t": topic()},
            states={TP: state(1, 1, 2, 3)},
            deleting=("t",),
        )
    )
    driven.deliver_all()
    assert driven.of(DeleteTopicNodes) != []
