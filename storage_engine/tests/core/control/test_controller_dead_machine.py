"""A machine with many brokers dies: its partitions fail over together, and none to another broker
of that machine, in whatever order the sessions of its brokers end. Source: R-CTL2, R-REP13."""

from collections import Counter

import pytest

from storage_engine.core.assignment import NewPartitions, assign_replicas
from storage_engine.core.control.controller import ELECTIONS_PER_TURN, TURNS_HELD_MAX
from storage_engine.core.control.controller_events import (
    BrokersChanged,
    ContinueElections,
    Deliver,
    DeliveryMade,
    ElectionsContinued,
    Loaded,
    StatesWritten,
    WriteOutcome,
    WriteStates,
)
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.placement import BrokerPlace
from storage_engine.tests.core.control.controller_bench import Driven, brokers, state, topic

BROKERS = tuple(range(1, 49))
DEAD = BROKERS[:16]
"""The brokers of the first of three machines."""
PARTITIONS = 960


def cluster() -> Driven:
    places = {BrokerId(b): BrokerPlace(None, f"h{(b - 1) // 16}") for b in BROKERS}
    assigned = assign_replicas(places, NewPartitions(PARTITIONS, 3))
    info = topic("t", *assigned.values())
    driven = Driven()
    states = {
        TopicPartition("t", p): state(replicas[0], *replicas)
        for p, replicas in info.assignment.items()
    }
    driven.step(Loaded(brokers=brokers(*BROKERS), topics={"t": info}, states=states))
    driven.deliver_all()
    driven.all_effects.clear()
    return driven


def written(driven: Driven) -> list:
    return [
        write
        for effect in driven.all_effects
        if isinstance(effect, WriteStates)
        for write in effect.writes
    ]


def test_sessions_that_end_at_one_moment_are_one_round_of_elections():
    driven = cluster()
    driven.step(BrokersChanged(brokers=brokers(*BROKERS[16:])))
    writes = written(driven)
    assert len(writes) == PARTITIONS, "each partition has one replica there"
    turns = sum(isinstance(effect, ContinueElections) for effect in driven.all_effects)
    assert turns <= PARTITIONS // ELECTIONS_PER_TURN + 1
    assert len(writes) == len({write.partition for write in writes})
    assert not any(write.state.leader in DEAD for write in writes)
    assert not any(set(DEAD).intersection(write.state.isr) for write in writes)
    assignment = driven.core.topic("t").assignment
    had_leader = [assignment[write.partition.partition][0] not in DEAD for write in writes]
    whole_turns = had_leader.count(False) // ELECTIONS_PER_TURN * ELECTIONS_PER_TURN
    assert whole_turns
    assert not any(had_leader[:whole_turns]), "those that nobody leads come first"
    driven.answer_last()
    assert not driven.writes()
    told = Counter(effect.broker for effect in driven.all_effects if isinstance(effect, Deliver))
    assert set(told) == set(BROKERS[16:])


@pytest.mark.parametrize("step", [1, 3, 5])
def test_sessions_that_end_one_after_another_hold_no_election_twice(step):
    """The controller sees some of them first; the last ones end while it writes."""
    driven = cluster()
    live = list(BROKERS)
    unanswered: dict = {}
    for start in range(0, len(DEAD), step):
        for broker in DEAD[start : start + step]:
            live.remove(broker)
        driven.step(BrokersChanged(brokers=brokers(*live)))
        unanswered.update({write.partition: write.state for write in driven.writes()})
        if start % 2:
            accepted = {tp: (WriteOutcome.ACCEPTED, each) for tp, each in unanswered.items()}
            unanswered.clear()
            driven.step(StatesWritten(outcomes=accepted))
            unanswered.update({write.partition: write.state for write in driven.writes()})
        while driven.deliveries:
            effect = driven.deliveries.pop()
            driven.step(DeliveryMade(broker=effect.broker, delivery=effect.delivery))
            unanswered.update({write.partition: write.state for write in driven.writes()})
    writes = written(driven)
    assert Counter(write.partition for write in writes) == {
        TopicPartition("t", p): 1 for p in range(PARTITIONS)
    }
    assert not any(write.state.leader in DEAD for write in writes)


def test_brokers_hear_of_a_burst_of_elections_together():
    """States are accepted while the elections go on, as they are written."""
    driven = cluster()
    core = driven.core
    effects = core.step(BrokersChanged(brokers=brokers(*BROKERS[16:])))
    told: list[Deliver] = []
    turns = 0
    while any(isinstance(effect, ContinueElections) for effect in effects):
        turns += 1
        told += [effect for effect in effects if isinstance(effect, Deliver)]
        writes = [w for effect in effects if isinstance(effect, WriteStates) for w in effect.writes]
        accepted = {each.partition: (WriteOutcome.ACCEPTED, each.state) for each in writes}
        told += [e for e in core.step(StatesWritten(outcomes=accepted)) if isinstance(e, Deliver)]
        effects = core.step(ElectionsContinued())
    assert turns > 3
    assert told == []
    told = [effect for effect in effects if isinstance(effect, Deliver)]
    assert Counter(effect.broker for effect in told) == dict.fromkeys(BROKERS[16:], 1)
    assert {len(effect.delivery.metadata) for effect in told} == {PARTITIONS}
    assert len({id(effect.delivery.metadata) for effect in told}) == 1, "it is made once for all"


def test_orders_wait_for_a_bounded_number_of_turns():
    """A new controller may look at very many partitions of which none needs a change."""
    places = {BrokerId(b): BrokerPlace(None, None) for b in (1, 2, 3)}
    count = 2 * TURNS_HELD_MAX * ELECTIONS_PER_TURN
    info = topic("t", *assign_replicas(places, NewPartitions(count, 1)).values())
    states = {TopicPartition("t", p): state(r[0], *r) for p, r in info.assignment.items()}
    core = Driven().core
    effects = core.step(Loaded(brokers=brokers(1, 2, 3), topics={"t": info}, states=states))
    turns = 0
    while not any(isinstance(effect, Deliver) for effect in effects):
        assert any(isinstance(effect, ContinueElections) for effect in effects)
        effects = core.step(ElectionsContinued())
        turns += 1
    assert turns == TURNS_HELD_MAX


def test_the_living_brokers_lead_alike_afterwards():
    driven = cluster()
    driven.step(BrokersChanged(brokers=brokers(*BROKERS[16:])))
    leaders = Counter(write.state.leader for write in written(driven))
    assert set(leaders) == set(BROKERS[16:])
    assert max(leaders.values()) <= 1.25 * PARTITIONS / 32
