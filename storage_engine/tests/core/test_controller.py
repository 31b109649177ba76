"""The controller's state machine, event by event. Source: R-CTL2 to R-CTL9, R-REP9."""

from dataclasses import replace
from uuid import UUID

from storage_engine.core.cluster_state import BrokerInfo, PartitionState, TopicInfo
from storage_engine.core.controller import Controller
from storage_engine.core.controller_events import (
    AssignmentsWritten,
    BalanceChecked,
    BrokerReportsFailures,
    BrokersChanged,
    ControlledShutdownRequested,
    DeleteTopicNodes,
    Deliver,
    Delivered,
    DeliveryFailed,
    DropDeletionRequests,
    Loaded,
    NoReplicaOnline,
    ReadStates,
    ReplicasFailed,
    ShutdownProgress,
    StatesRead,
    StatesWritten,
    StateWrite,
    TopicDeleted,
    TopicDeletionRequested,
    TopicsChanged,
    TopicsReady,
    WriteOutcome,
    WriteStates,
)
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)

TP = TopicPartition("t", 0)


def brokers(*ids: int, **epochs: int) -> dict[BrokerId, BrokerInfo]:
    """Registered brokers; `b2=7` gives broker 2 the incarnation 7 (else 1)."""
    return {
        BrokerId(b): BrokerInfo(
            broker_id=BrokerId(b),
            host=f"host{b}",
            port=9092,
            epoch=BrokerEpoch(epochs.get(f"b{b}", 1)),
        )
        for b in ids
    }


def topic(name: str = "t", *replicas: tuple[int, ...], unclean: bool = False) -> TopicInfo:
    return TopicInfo(
        topic=name,
        topic_id=UUID(int=1),
        assignment={
            p: tuple(BrokerId(b) for b in rs) for p, rs in enumerate(replicas or ((1, 2, 3),))
        },
        unclean_election=unclean,
    )


def state(leader: int, *isr: int, epoch: int = 3, version: int = 5, zxid: int = 0):
    return PartitionState(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=tuple(BrokerId(b) for b in isr),
        controller_epoch=ControllerEpoch(1),
        partition_epoch=PartitionEpoch(version),
        written_zxid=zxid,
    )


class Driven:
    """A controller whose writes and deliveries are answered when the test says so."""

    def __init__(self, *, delete_topic_enable: bool = True) -> None:
        self.core = Controller(
            controller_epoch=ControllerEpoch(9), delete_topic_enable=delete_topic_enable
        )
        self.effects: list = []
        self.all_effects: list = []
        self.deliveries: list[Deliver] = []

    def step(self, event) -> list:
        self.effects = self.core.step(event)
        self.all_effects += self.effects
        self.deliveries += self.of(Deliver)
        return self.effects

    def of_all_deliveries(self) -> list[Deliver]:
        return [effect for effect in self.all_effects if isinstance(effect, Deliver)]

    def last_of(self, kind) -> list:
        """The last effect of a kind, in a list; whenever it came."""
        return [effect for effect in self.all_effects if isinstance(effect, kind)][-1:]

    def of(self, kind) -> list:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def writes(self) -> list[StateWrite]:
        return [write for effect in self.of(WriteStates) for write in effect.writes]

    def answer(self, outcome: WriteOutcome = WriteOutcome.ACCEPTED) -> list:
        return self.step(
            StatesWritten(outcomes={w.partition: (outcome, w.state) for w in self.writes()})
        )

    def answer_last(self) -> list:
        """Accept the last writes, whatever has happened since."""
        self.effects = self.last_of(WriteStates)
        return self.answer()

    def deliver_all(self) -> list:
        """Answer deliveries until none is under way; those that were made."""
        made = []
        while self.deliveries:
            effect = self.deliveries.pop(0)
            made.append(effect)
            self.step(Delivered(broker=effect.broker, delivery=effect.delivery))
        return made


def running(
    *,
    live=(1, 2, 3),
    info: TopicInfo | None = None,
    known: PartitionState | None = None,
    **options,
) -> Driven:
    """A controller of topic t that has told everybody everything."""
    driven = Driven(**options)
    info = info or topic()
    driven.step(
        Loaded(
            brokers=brokers(*live),
            topics={"t": info},
            states={TP: known or state(1, 1, 2, 3)},
        )
    )
    driven.deliver_all()
    return driven


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
    driven.step(TopicsChanged(topics={"t": topic()}))
    (write,) = driven.writes()
    assert (write.state.leader, write.state.isr) == (2, (2, 3))
    assert (write.state.leader_epoch, write.expected_partition_epoch) == (0, None)
    assert write.state.controller_epoch == 9


def test_a_creation_is_ready_when_all_partitions_have_a_state():
    driven = Driven()
    driven.step(Loaded(brokers=brokers(1), topics={}, states={}))
    driven.step(TopicsChanged(topics={"t": topic("t", (1,), (1,))}))
    first, second = driven.writes()
    accepted = WriteOutcome.ACCEPTED
    driven.step(StatesWritten(outcomes={first.partition: (accepted, first.state)}))
    assert driven.of(TopicsReady) == []
    driven.step(StatesWritten(outcomes={second.partition: (accepted, second.state)}))
    assert driven.of(TopicsReady) == [TopicsReady(topics=("t",))]


def test_a_topic_that_is_reported_again_is_ready_again():
    # Whoever wrote it may have been overtaken by the watch.
    driven = running()
    driven.step(TopicsChanged(topics={"t": topic()}))
    assert driven.of(TopicsReady) == [TopicsReady(topics=("t",))]


def test_a_new_partition_without_a_live_replica_waits_for_one():
    driven = Driven()
    driven.step(Loaded(brokers=brokers(7), topics={"t": topic()}, states={}))
    assert driven.writes() == []
    driven.step(BrokersChanged(brokers=brokers(3, 7)))
    assert driven.writes()[0].state.leader == 3


def test_added_partitions_get_a_leader_and_the_old_ones_keep_theirs():
    driven = running()
    driven.step(TopicsChanged(topics={"t": topic("t", (1, 2, 3), (2, 3, 1))}))
    assert [w.partition for w in driven.writes()] == [TopicPartition("t", 1)]


# --- brokers that go and come ---


def test_a_topic_as_it_was_before_it_grew_changes_nothing():
    driven = running()
    driven.step(TopicsChanged(topics={"t": topic("t", (1, 2, 3), (2, 3, 1))}))
    (write,) = driven.writes()
    # Read before the growth, told after it; the new partition is looked at once more.
    driven.step(TopicsChanged(topics={"t": topic()}))
    driven.step(StatesWritten(outcomes={write.partition: (WriteOutcome.UNKNOWN, write.state)}))
    driven.step(StatesRead(states={write.partition: None}))
    assert [again.partition for again in driven.writes()] == [TopicPartition("t", 1)]
    made_anew = replace(topic(), topic_id=UUID(int=2))
    driven.step(TopicsChanged(topics={"t": made_anew}))
    assert driven.core.topics["t"] == made_anew


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
    assert driven.core.states[TP] != newer


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


# --- controlled shutdown and preferred leaders ---


def leave(broker: int, epoch: int = 1) -> ControlledShutdownRequested:
    return ControlledShutdownRequested(broker=BrokerId(broker), broker_epoch=BrokerEpoch(epoch))


def test_a_leaving_broker_hands_over_and_hears_when_nothing_is_left():
    driven = running()
    driven.step(leave(1))
    assert driven.of(ShutdownProgress)[0].remaining == (TP,)
    assert (driven.writes()[0].state.leader, driven.writes()[0].state.isr) == (2, (2, 3))
    driven.answer()
    assert driven.of(ShutdownProgress)[0].remaining == ()


def test_a_leaving_broker_does_not_wait_for_what_nobody_can_take_over():
    driven = running(known=state(1, 1))
    driven.step(leave(1))
    assert driven.writes() == []
    assert driven.of(ShutdownProgress)[0].remaining == ()


def test_a_leaving_broker_is_not_elected_while_another_can_lead():
    driven = running()
    driven.step(leave(2))
    driven.answer()
    driven.step(BrokersChanged(brokers=brokers(2, 3)))
    assert driven.writes()[0].state.leader == 3


def test_a_shutdown_of_an_earlier_incarnation_is_ignored():
    driven = running()
    driven.step(leave(1, epoch=77))
    assert driven.writes() == []


def test_a_broker_that_came_back_is_not_leaving_any_more():
    driven = running()
    driven.step(leave(3))
    driven.answer()
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3, b3=2)))
    assert driven.of(ShutdownProgress) == []
    driven.step(StatesRead(states={TP: state(2, 2, 3, version=9)}))
    driven.step(BrokersChanged(brokers=brokers(3, b3=2)))
    assert driven.writes()[0].state.leader == 3


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


# --- deletion ---


def test_a_topic_is_gone_when_all_its_replicas_are():
    driven = running()
    driven.step(TopicDeletionRequested(topics=("t",)))
    assert all(effect.delivery.stop == (TP,) for effect in driven.deliveries)
    assert all(effect.delivery.removed_topics == ("t",) for effect in driven.deliveries)
    for effect in driven.deliveries[:2]:
        driven.step(Delivered(broker=effect.broker, delivery=effect.delivery))
    assert driven.of(DeleteTopicNodes) == []
    last = driven.deliveries[2]
    driven.step(Delivered(broker=last.broker, delivery=last.delivery))
    assert driven.of(DeleteTopicNodes) == [DeleteTopicNodes(topic="t", partitions=(0,))]
    driven.step(TopicDeleted(topic="t"))
    assert driven.core.topics == {}
    assert driven.core.states == {}


def test_a_deletion_waits_for_a_dead_broker_to_return():
    driven = running(live=(1, 2), known=state(1, 1, 2))
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.deliver_all()
    assert driven.of(DeleteTopicNodes) == []
    driven.step(BrokersChanged(brokers=brokers(1, 2, 3)))
    (back,) = [e.delivery for e in driven.deliveries if e.broker == 3]
    assert back.stop == (TP,)
    assert back.leadership == ()
    driven.step(Delivered(broker=BrokerId(3), delivery=back))
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


def test_a_topic_that_changed_while_it_was_deleted_leaves_nothing_behind():
    driven = running(live=(1, 2, 3))
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.step(TopicsChanged(topics={"t": topic("t", (1, 2, 3), (2, 3, 1))}))
    driven.deliver_all()
    driven.step(TopicDeleted(topic="t"))
    driven.step(BrokersChanged(brokers=brokers(1, 2)))
    assert driven.writes() == []


def test_a_move_that_is_written_while_the_topic_is_deleted_keeps_no_replica():
    """The deletion went on without a replica that the move was to remove, which led on with its
    files (seed 40080 of the random world)."""
    driven = Driven()
    towards = topic().assigned(0).towards((BrokerId(2), BrokerId(3)))
    moving = topic().with_assigned(0, towards)
    driven.step(Loaded(brokers=brokers(1, 2, 3), topics={"t": moving}, states={TP: state(2, 2, 3)}))
    driven.deliver_all()
    driven.step(TopicDeletionRequested(topics=("t",)))
    driven.step(AssignmentsWritten(topic="t", info=moving.with_assigned(0, towards.finished())))
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


# --- deliveries ---


def test_one_delivery_to_a_broker_is_under_way_and_the_rest_collapses():
    driven = running()
    driven.step(StatesRead(states={TP: state(1, 1, 2, version=6)}))
    (first,) = [e for e in driven.deliveries if e.broker == 2]
    for version in (7, 8, 9):
        driven.step(StatesRead(states={TP: state(1, 1, 3, version=version)}))
        assert [e for e in driven.of(Deliver) if e.broker == 2] == []
    driven.step(Delivered(broker=BrokerId(2), delivery=first.delivery))
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
    driven.step(Delivered(broker=BrokerId(1), delivery=first.delivery))
    driven.step(DeliveryFailed(broker=BrokerId(1), delivery=second.delivery))
    assert driven.of(Deliver)[0].delivery.full


# --- replicas whose data folder failed ---


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
    assert driven.core._failed == {}


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
