"""A leaving broker gives up its partitions in waves. Source: R-CTL9."""

from dataclasses import replace

from storage_engine.core.control.controller_events import (
    BrokersChanged,
    ControlledShutdownRequested,
    DeliveryMade,
    Loaded,
    ShutdownProgress,
    StatesWritten,
    WriteOutcome,
    WriteStates,
)
from storage_engine.core.control.planned_changes import LEAST_IN_WAVE
from storage_engine.core.ids import BrokerEpoch, BrokerId, TopicPartition
from storage_engine.tests.core.control.controller_bench import Driven, brokers, state, topic

LEAVING = BrokerId(1)
LED = 2 * LEAST_IN_WAVE + 20
FOLLOWED = 30
REQUEST = ControlledShutdownRequested(broker=LEAVING, broker_epoch=BrokerEpoch(1))


def running() -> Driven:
    """Broker 1 leads LED partitions, and then follows in FOLLOWED."""
    driven = Driven()
    placed = [(1, 2, 3)] * LED + [(2, 1, 3)] * FOLLOWED
    driven.step(
        Loaded(
            brokers=brokers(1, 2, 3),
            topics={"t": topic("t", *placed)},
            states={
                TopicPartition("t", p): state(replicas[0], 1, 2, 3)
                for p, replicas in enumerate(placed)
            },
        )
    )
    driven.deliver_all()
    return driven


def remaining(driven: Driven) -> int:
    return len(driven.of(ShutdownProgress)[0].remaining)


def finish(driven: Driven) -> int:
    """Accept every write and confirm every delivery until none is left; the number of waves."""
    seen = waves = 0
    while True:
        writes = [e for e in driven.all_effects if isinstance(e, WriteStates)]
        if len(writes) > seen:
            outcomes = {w.partition: (WriteOutcome.ACCEPTED, w.state) for w in writes[seen].writes}
            seen += 1
            waves += any(LEAVING not in state.isr for _, state in outcomes.values())
            driven.step(StatesWritten(outcomes=outcomes))
        elif driven.deliveries:
            effect = driven.deliveries.pop(0)
            driven.step(DeliveryMade(broker=effect.broker, delivery=effect.delivery))
        else:
            return waves


def test_nothing_remains_when_the_new_leaders_of_the_last_wave_know():
    """The broker stops then. It may be the controller itself, whose last orders would be lost."""
    driven = Driven()
    topics = {"t": topic("t", *[(1, 2, 3)] * 3)}
    states = {TopicPartition("t", p): state(1, 1, 2, 3) for p in range(3)}
    driven.step(Loaded(brokers=brokers(1, 2, 3), topics=topics, states=states))
    driven.deliver_all()
    driven.step(REQUEST)
    driven.answer()
    assert remaining(driven) == 3, "they are led by another one, which has not been told"
    for effect in [each for each in driven.deliveries if each.broker != 2]:
        driven.step(DeliveryMade(broker=effect.broker, delivery=effect.delivery))
    assert remaining(driven) == 3
    (told,) = [each for each in driven.deliveries if each.broker == 2]
    driven.step(DeliveryMade(broker=told.broker, delivery=told.delivery))
    assert remaining(driven) == 0


def test_the_next_wave_begins_when_the_new_leaders_of_the_last_one_know():
    driven = running()
    driven.step(REQUEST)
    moved = [write.partition.partition for write in driven.writes()]
    assert moved == list(range(LEAST_IN_WAVE)), "what it leads comes first"
    driven.answer()
    assert driven.writes() == [], "the leaders have not been told"
    follower = [e for e in driven.deliveries if e.broker != 2]
    leader = [e for e in driven.deliveries if e.broker == 2]
    for effect in follower:
        driven.step(DeliveryMade(broker=effect.broker, delivery=effect.delivery))
    assert driven.writes() == [], "followers are not waited for"
    (told,) = leader
    driven.step(DeliveryMade(broker=told.broker, delivery=told.delivery))
    assert [w.partition.partition for w in driven.writes()] == list(
        range(LEAST_IN_WAVE, 2 * LEAST_IN_WAVE)
    )
    assert remaining(driven) == LED + FOLLOWED - LEAST_IN_WAVE


def test_progress_is_told_once_a_wave_however_many_answers_a_wave_has():
    driven = running()
    driven.step(REQUEST)
    for write in driven.writes():
        outcomes = {write.partition: (WriteOutcome.ACCEPTED, write.state)}
        driven.step(StatesWritten(outcomes=outcomes))
    told = [e for e in driven.all_effects if isinstance(e, ShutdownProgress)]
    assert len(told) == 1, "each looks at all partitions of the cluster"


def test_it_hears_when_nothing_is_left_to_give_up():
    driven = running()
    driven.step(REQUEST)
    assert finish(driven) == -(-(LED + FOLLOWED) // LEAST_IN_WAVE)
    assert driven.last_of(ShutdownProgress)[0].remaining == ()
    assert all(LEAVING not in known.isr for known in driven.core.states().values())


def test_a_refused_write_keeps_its_wave_open():
    driven = running()
    driven.step(REQUEST)
    driven.answer(WriteOutcome.CONFLICT)
    assert driven.writes() == []


def test_a_new_leader_that_dies_before_it_knows_keeps_nobody_waiting():
    driven = running()
    driven.step(REQUEST)
    driven.answer()
    driven.deliveries = [effect for effect in driven.deliveries if effect.broker != 2]
    driven.all_effects.clear()
    driven.step(BrokersChanged(brokers=brokers(1, 3)))
    finish(driven)
    assert driven.last_of(ShutdownProgress)[0].remaining == ()
    assert {known.leader for known in driven.core.states().values()} == {3}


def test_a_broker_of_very_many_partitions_takes_no_more_than_so_many_waves():
    driven = Driven()
    count = 100 * LEAST_IN_WAVE
    known = state(1, 1, 2, 3)
    driven.step(
        Loaded(
            brokers=brokers(1, 2, 3),
            topics={"t": topic("t", *[(1, 2, 3)] * count)},
            states={TopicPartition("t", p): replace(known) for p in range(count)},
        )
    )
    driven.deliver_all()
    driven.step(REQUEST)
    assert len(driven.writes()) == 2 * LEAST_IN_WAVE


def test_asked_again_it_begins_again_with_what_is_left():
    driven = running()
    driven.step(REQUEST)
    driven.answer()
    driven.step(REQUEST)
    again = [write.partition.partition for write in driven.writes()]
    assert again == list(range(LEAST_IN_WAVE, 2 * LEAST_IN_WAVE))
