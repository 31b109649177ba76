"""The controller's state machine, event by event: partitions that are new, brokers that come and
go, writes that fail. Source: R-CTL2 to R-CTL9, R-REP9.
"""

from dataclasses import replace
from uuid import UUID

import pytest

from storage_engine.core.control.controller import ELECTIONS_PER_TURN
from storage_engine.core.control.controller_events import (
    BalanceChecked,
    BrokersChanged,
    ControlledShutdownRequested,
    Loaded,
    NoReplicaOnline,
    ReadStates,
    ShutdownProgress,
    StatesRead,
    StatesWritten,
    TopicsRead,
    TopicsReady,
    WriteOutcome,
)
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    TopicPartition,
)
from storage_engine.tests.core.control.controller_bench import (
    TP,
    Driven,
    brokers,
    running,
    state,
    topic,
)

# --- loading and creation ---


def test_a_notice_of_a_partition_that_does_not_exist_is_passed_over():
    driven = running()
    driven.step(StatesRead(states={TopicPartition("t", 99): state(1, 1, version=9)}))
    driven.step(StatesRead(states={TopicPartition("t", 99): None}))
    assert not driven.writes()


def test_a_new_controller_tells_every_broker_everything():
    driven = Driven()
    driven.step(
        Loaded(brokers=brokers(1, 2, 4), topics={"t": topic()}, states={TP: state(1, 1, 2)})
    )
    assert driven.writes() == []
    told = {int(effect.broker): effect.delivery for effect in driven.deliveries}
    assert set(told) == {1, 2, 4}
    assert all(delivery.full for delivery in told.values())
    assert [item.partition for item in told[2].leadership] == [TP]
    assert told[4].leadership == ()
    assert [item.partition for item in told[4].metadata] == [TP]


def test_a_new_partition_is_led_by_its_first_live_replica_with_all_live_ones_in_sync():
    driven = Driven()
    driven.step(Loaded(brokers=brokers(2, 3), topics={}, states={}))
    driven.step(TopicsRead(topics={"t": topic()}))
    (write,) = driven.writes()
    assert (write.state.leader, write.state.isr) == (2, (2, 3))
    assert (write.state.leader_epoch, write.expected_partition_epoch) == (0, None)
    assert write.state.controller_epoch == 9


def test_a_creation_is_ready_when_all_partitions_have_a_state():
    driven = Driven()
    driven.step(Loaded(brokers=brokers(1), topics={}, states={}))
    driven.step(TopicsRead(topics={"t": topic("t", (1,), (1,))}))
    first, second = driven.writes()
    accepted = WriteOutcome.ACCEPTED
    driven.step(StatesWritten(outcomes={first.partition: (accepted, first.state)}))
    assert driven.of(TopicsReady) == []
    driven.step(StatesWritten(outcomes={second.partition: (accepted, second.state)}))
    assert driven.of(TopicsReady) == [TopicsReady(topics=("t",))]


def test_a_topic_that_is_reported_again_is_ready_again():
    # Whoever wrote it may have been overtaken by the watch.
    driven = running()
    driven.step(TopicsRead(topics={"t": topic()}))
    assert driven.of(TopicsReady) == [TopicsReady(topics=("t",))]


def test_a_new_partition_without_a_live_replica_waits_for_one():
    driven = Driven()
    driven.step(Loaded(brokers=brokers(7), topics={"t": topic()}, states={}))
    assert driven.writes() == []
    driven.step(BrokersChanged(brokers=brokers(3, 7)))
    assert driven.writes()[0].state.leader == 3


def test_added_partitions_get_a_leader_and_the_old_ones_keep_theirs():
    driven = running()
    driven.step(TopicsRead(topics={"t": topic("t", (1, 2, 3), (2, 3, 1))}))
    assert [w.partition for w in driven.writes()] == [TopicPartition("t", 1)]


# --- brokers that go and come ---


def test_a_topic_as_it_was_before_it_grew_changes_nothing():
    driven = running()
    driven.step(TopicsRead(topics={"t": topic("t", (1, 2, 3), (2, 3, 1))}))
    (write,) = driven.writes()
    # Read before the growth, told after it; the new partition is looked at once more.
    driven.step(TopicsRead(topics={"t": topic()}))
    driven.step(StatesWritten(outcomes={write.partition: (WriteOutcome.UNKNOWN, write.state)}))
    driven.step(StatesRead(states={write.partition: None}))
    assert [again.partition for again in driven.writes()] == [TopicPartition("t", 1)]
    made_anew = replace(topic(), topic_id=UUID(int=2))
    driven.step(TopicsRead(topics={"t": made_anew}))
    assert driven.core.topic("t") == made_anew


def test_a_dead_leader_is_replaced_by_the_first_live_in_sync_replica():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    (write,) = driven.writes()
    assert (write.state.leader, write.state.isr, write.state.leader_epoch) == (2, (2, 3), 4)
    assert write.expected_partition_epoch == 5


def test_a_dead_follower_leaves_the_isr():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(1, 2)))
    assert driven.writes()[0].state.isr == (1, 2)
    assert driven.writes()[0].state.leader == 1


def test_brokers_hear_of_an_election_only_when_it_is_written():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    assert all(not effect.delivery.leadership for effect in driven.deliveries)
    writes = driven.writes()
    driven.deliver_all()
    driven.step(
        StatesWritten(outcomes={w.partition: (WriteOutcome.ACCEPTED, w.state) for w in writes})
    )
    assert {effect.broker for effect in driven.deliveries} == {2, 3}
    assert all(e.delivery.leadership[0].state.leader == 2 for e in driven.deliveries)


def test_a_partition_whose_whole_isr_died_keeps_its_isr_without_a_leader():
    driven = running(known=state(1, 1))
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    (write,) = driven.writes()
    assert (write.state.leader, write.state.isr) == (-1, (1,))
    assert driven.of(NoReplicaOnline) == [NoReplicaOnline(partitions=(TP,))]


def test_a_returning_member_of_the_last_isr_leads_again():
    driven = running(live=(2, 3), known=state(-1, 1))
    assert driven.writes() == []
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3)))
    assert (driven.writes()[0].state.leader, driven.writes()[0].state.isr) == (1, (1,))


def test_an_unclean_election_is_held_only_where_the_topic_allows_it():
    driven = running(known=state(1, 1), info=topic(unclean=True))
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    assert (driven.writes()[0].state.leader, driven.writes()[0].state.isr) == (2, (2,))


def test_an_in_sync_broker_that_has_just_come_back_is_preferred_to_an_unclean_leader():
    driven = running(known=state(1, 1), info=topic(unclean=True))
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3, b1=2)))
    assert (driven.writes()[0].state.leader, driven.writes()[0].state.isr) == (1, (1,))


def test_a_leader_that_bounced_loses_its_leadership():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3, b1=2)))
    assert (driven.writes()[0].state.leader, driven.writes()[0].state.isr) == (2, (2, 3))


def test_a_follower_that_bounced_leaves_the_isr():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3, b3=2)))
    assert (driven.writes()[0].state.leader, driven.writes()[0].state.isr) == (1, (1, 2))


def test_a_bounced_leader_that_was_alone_in_sync_leads_again_under_a_new_epoch():
    driven = running(known=state(1, 1))
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3, b1=2)))
    (write,) = driven.writes()
    assert (write.state.leader, write.state.isr, write.state.leader_epoch) == (1, (1,), 4)


def test_a_bounced_leader_is_not_told_to_lead_on_under_its_old_epoch():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3, b1=2)))
    (everything,) = [e.delivery for e in driven.deliveries if e.broker == 1]
    assert everything.full
    assert everything.leadership == ()
    writes = driven.writes()
    driven.deliver_all()
    driven.step(
        StatesWritten(outcomes={w.partition: (WriteOutcome.ACCEPTED, w.state) for w in writes})
    )
    (news,) = [e.delivery for e in driven.deliveries if e.broker == 1]
    assert news.leadership[0].state.leader == 2


def test_a_bounce_during_a_write_is_dealt_with_after_it():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    write = driven.writes()[0]
    assert write.state.leader == 2
    driven.step(BrokersChanged(brokers=brokers(2, 3, b2=2)))
    driven.step(StatesWritten(outcomes={TP: (WriteOutcome.ACCEPTED, write.state)}))
    assert (driven.writes()[0].state.leader, driven.writes()[0].state.isr) == (3, (3,))


def test_a_broker_that_went_and_came_back_during_a_write_counts_as_bounced():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(1, 2)))
    write = driven.writes()[0]
    assert write.state.isr == (1, 2)
    driven.step(BrokersChanged(brokers=brokers(1)))
    driven.step(BrokersChanged(brokers=brokers(1, 2, b2=8)))
    driven.step(StatesWritten(outcomes={TP: (WriteOutcome.ACCEPTED, write.state)}))
    assert driven.writes()[0].state.isr == (1,)


def test_a_new_controller_notices_who_registered_after_the_state_was_written():
    driven = Driven()
    driven.step(
        Loaded(
            brokers=brokers(1, 2, 3, b1=70, b2=10, b3=10),
            topics={"t": topic()},
            states={TP: state(1, 1, 2, 3, zxid=50)},
        )
    )
    assert (driven.writes()[0].state.leader, driven.writes()[0].state.isr) == (2, (2, 3))


def test_a_new_controller_notices_a_leader_that_wrote_its_isr_after_it_had_registered_anew():
    """Told everything but this partition, that leader may have forgotten that it leads; told so
    again under the old epoch, it would take an ISR for the present one that has grown since, and
    acknowledge what only it holds (seed 31644 of the random world)."""
    driven = Driven()
    known = replace(state(3, 3, zxid=153), joined_epochs={BrokerId(3): BrokerEpoch(108)})
    driven.step(
        Loaded(
            brokers=brokers(1, 2, 3, b1=10, b2=10, b3=152),
            topics={"t": topic()},
            states={TP: known},
        )
    )
    (write,) = driven.writes()
    assert (write.state.leader, write.state.leader_epoch) == (3, known.leader_epoch + 1)
    assert write.expected_partition_epoch == known.partition_epoch
    (told,) = [e.delivery for e in driven.deliveries if e.broker == 3]
    assert told.full
    assert told.leadership == ()


def test_after_a_restart_of_the_whole_cluster_each_leadership_is_renewed():
    driven = Driven()
    driven.step(
        Loaded(
            brokers=brokers(1, 2, 3, b1=70, b2=71, b3=72),
            topics={"t": topic()},
            states={TP: state(2, 1, 2, 3, zxid=50)},
        )
    )
    (write,) = driven.writes()
    assert write.state.leader_epoch == 4
    assert write.state.isr == (1, 2, 3)


# --- writes that fail ---


def test_a_conflict_is_read_and_decided_again():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    driven.answer(WriteOutcome.CONFLICT)
    assert driven.of(ReadStates) == [ReadStates(partitions=(TP,))]
    driven.step(StatesRead(states={TP: state(1, 1, 3, version=6)}))
    (write,) = driven.writes()
    assert (write.state.leader, write.expected_partition_epoch) == (3, 6)


def test_what_a_later_controller_wrote_is_told_by_that_one_only():
    """It may go with another assignment: the random world let a retired replica into an ISR (seed
    10662)."""
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(1, 2)))
    driven.answer(WriteOutcome.CONFLICT)
    assert driven.of(ReadStates) == [ReadStates(partitions=(TP,))]
    driven.deliver_all()
    newer = replace(state(2, 1, 2, epoch=4, version=6), controller_epoch=ControllerEpoch(10))
    assert driven.step(StatesRead(states={TP: newer})) == []
    assert driven.core.state(TP) != newer


def test_an_unknown_outcome_that_was_written_is_taken_for_it():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    written = driven.writes()[0].state
    driven.answer(WriteOutcome.UNKNOWN)
    driven.deliver_all()
    driven.step(StatesRead(states={TP: written}))
    assert driven.writes() == []
    assert driven.deliveries[0].delivery.leadership[0].state == written


def test_an_unknown_outcome_that_was_not_written_is_written_again():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    driven.answer(WriteOutcome.UNKNOWN)
    driven.step(StatesRead(states={TP: state(1, 1, 2, 3)}))
    assert driven.writes()[0].state.leader == 2


@pytest.mark.parametrize("outcome", list(WriteOutcome))
def test_a_write_that_ends_after_a_smaller_topic_has_the_name_changes_nothing(outcome):
    """Others removed the topic, and made another with fewer partitions."""
    driven = Driven()
    gone = TopicPartition("t", 1)
    driven.step(
        Loaded(
            brokers=brokers(1, 2, 3),
            topics={"t": topic("t", (1, 2, 3), (2, 3, 1))},
            states={TP: state(1, 1, 2, 3), gone: state(2, 2, 3, 1)},
        )
    )
    driven.deliver_all()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    (write,) = (write for write in driven.writes() if write.partition == gone)
    anew = replace(topic("t", (1, 2, 3)), topic_id=UUID(int=2))
    driven.step(TopicsRead(topics={"t": anew}))
    driven.step(StatesWritten(outcomes={gone: (outcome, write.state)}))
    assert driven.of(ReadStates) == []
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3)))
    assert driven.core.state(gone) is None
    assert driven.core.is_settled(gone)


def test_a_smaller_topic_made_anew_is_none_whose_lost_id_is_there_again():
    """A broker that led what it does not have would wait for another leader before it stops."""
    driven = Driven()
    gone = TopicPartition("t", 1)
    lost = replace(topic("t", (1, 2, 3), (2, 3, 1)), topic_id=UUID(int=0))
    driven.step(
        Loaded(
            brokers=brokers(1, 2, 3),
            topics={"t": lost},
            states={TP: state(1, 1, 2, 3), gone: state(2, 2, 3, 1)},
        )
    )
    driven.deliver_all()
    driven.step(TopicsRead(topics={"t": topic("t", (1, 2, 3))}))
    assert driven.core.state(gone) is None
    assert driven.core.state(TP) is None
    driven.answer()
    driven.deliver_all()
    driven.step(ControlledShutdownRequested(broker=BrokerId(2), broker_epoch=BrokerEpoch(1)))
    while driven.writes():
        driven.answer()
        driven.deliver_all()
    (progress,) = driven.last_of(ShutdownProgress)
    assert progress.remaining == ()


def test_nothing_is_written_while_a_write_is_under_way():
    driven = running()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    driven.step(BrokersChanged(brokers=brokers(3)))
    assert driven.writes() == []


def test_an_isr_that_its_leader_changed_is_announced():
    driven = running()
    driven.step(StatesRead(states={TP: state(1, 1, 2, version=6)}))
    assert driven.writes() == []
    assert {e.broker for e in driven.deliveries} == {1, 2, 3}
    assert driven.deliveries[0].delivery.metadata[0].state.isr == (1, 2)


# --- the order of elections ---

MANY = 2 * ELECTIONS_PER_TURN


def two_topics(**of_b):
    """A broker's followers in "a", and what it leads in "b"; broker 2 has the others."""
    states = {}
    for partition in range(MANY):
        states[TopicPartition("a", partition)] = state(2, 2, 1)
        states[TopicPartition("b", partition)] = state(1, 1, 2)
    topics = {"a": topic("a", *[(2, 1)] * MANY), "b": topic("b", *[(1, 2)] * MANY)}
    return Loaded(topics=topics, states=states, **of_b)


def topics_in_order(driven):
    written = [write.partition.topic for write in driven.writes()]
    assert len(written) == 2 * MANY
    return "".join(dict.fromkeys(written[:MANY])), "".join(dict.fromkeys(written[MANY:]))


def test_partitions_without_a_leader_are_elected_before_those_that_lack_a_follower():
    driven = Driven()
    driven.step(two_topics(brokers=brokers(1, 2)))
    assert driven.writes() == []
    driven.step(BrokersChanged(brokers=brokers(2)))
    assert topics_in_order(driven) == ("b", "a")


def test_a_new_controller_begins_with_the_partitions_without_a_leader():
    driven = Driven()
    driven.step(two_topics(brokers=brokers(2)))
    assert topics_in_order(driven) == ("b", "a")


def test_a_leader_that_restarted_within_one_look_is_replaced_first():
    driven = Driven()
    driven.step(two_topics(brokers=brokers(1, 2)))
    driven.step(BrokersChanged(brokers=brokers(1, 2, b1=2)))
    assert topics_in_order(driven) == ("b", "a")


def test_preferred_replicas_lead_again_where_the_share_of_others_is_too_large():
    driven = running(known=state(2, 1, 2, 3))
    driven.step(BalanceChecked(percentage=100))
    assert driven.writes() == []
    driven.step(BalanceChecked(percentage=10))
    assert (driven.writes()[0].state.leader, driven.writes()[0].state.isr) == (1, (1, 2, 3))


def test_a_preferred_replica_outside_the_isr_is_not_elected():
    driven = running(known=state(2, 2, 3))
    driven.step(BalanceChecked(percentage=0))
    assert driven.writes() == []
