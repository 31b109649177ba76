"""Plans that empty brokers, beside what must be true of them, told from the plan alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.ids import TopicPartition
from storage_engine.tests.tools.placement.layouts import clusters, layout, machines_of
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement.drain_plan import plan_drain
from storage_engine.tools.placement.layout import Layout, PlacedPartition

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@given(clusters(), st.data())
def test_a_plan_empties_the_brokers_and_keeps_the_rule(cluster, data):
    drained = data.draw(st.sets(st.sampled_from(sorted(cluster.brokers)), min_size=1, max_size=2))
    try:
        plan = plan_drain(cluster, drained)
    except CommandError:
        return
    for tp, partition in cluster.partitions.items():
        final = plan.moves.get(tp, partition.replicas)
        assert not drained.intersection(final)
        assert len(set(final)) == len(final) == len(partition.replicas)
        assert len(set(machines_of(cluster, final))) == len(final)
        for broker in set(final).difference(partition.replicas):
            assert cluster.brokers[broker].is_alive
            assert not cluster.brokers[broker].is_cordoned
        kept = [broker for broker in partition.replicas if broker not in drained]
        assert set(kept) <= set(final)
        if tp in plan.leaders:
            assert sorted(plan.leaders[tp]) == sorted(partition.replicas)
            assert plan.leaders[tp][0] in partition.isr - drained
            assert plan.moves[tp][0] == plan.leaders[tp][0]
    assert plan.leaders.keys() <= plan.moves.keys()


@given(clusters(), st.data())
def test_a_refusal_has_a_reason(cluster, data):
    """A partition that a person could move, broker by broker, is refused by no plan."""
    broker = data.draw(st.sampled_from(sorted(cluster.brokers)))
    try:
        plan_drain(cluster, {broker})
    except CommandError:
        pass
    else:
        return
    reasons = []
    for partition in cluster.partitions.values():
        if broker not in partition.replicas:
            continue
        kept = [each for each in partition.replicas if each != broker]
        used = set(machines_of(cluster, kept))
        free = [
            each
            for each, place in cluster.brokers.items()
            if place.is_alive
            and not place.is_cordoned
            and each != broker
            and each not in kept
            and place.machine not in used
        ]
        dead = [each for each in kept if not cluster.brokers[each].is_alive]
        reasons.append(not free or dead or partition.leader < 0)
    assert any(reasons)


def test_leaders_go_to_the_replicas_whose_brokers_lead_least():
    cluster = layout([(1, 2, 3), (1, 2, 3), (2, 3, 1)])
    plan = plan_drain(cluster, {1})
    assert plan.leaders == {T0: (3, 2, 1), T1: (2, 3, 1)}
    assert plan.moves == {T0: (3, 2, 4), T1: (2, 3, 4), T2: (2, 3, 4)}


def test_a_replica_goes_to_the_rack_with_the_fewest_of_its_partition():
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "a", 6: "b"}
    cluster = layout([[1, 2, 3, 4], [6]], racks=racks, brokers=6)
    assert plan_drain(cluster, {4}).moves[T0] == (1, 2, 3, 6), "though broker 5 has fewer replicas"


def test_a_dead_broker_is_replaced_by_its_number():
    cluster = layout([(1, 2, 3)], dead={1})
    plan = plan_drain(cluster, {1})
    assert plan.moves == {T0: (2, 3, 4)}
    assert plan.leaders == {}, "they would wait for it"


def test_too_few_machines_are_told_with_what_they_would_leave():
    machines = {1: "h1", 2: "h1", 3: "h2", 4: "h3"}
    cluster = layout([(1, 3, 4)], machines=machines)
    assert plan_drain(cluster, {1}).moves == {T0: (3, 4, 2)}
    with pytest.raises(CommandError) as told:
        plan_drain(cluster, {1, 2}, lambda topic: {"t": 3}[topic])
    assert str(told.value) == (
        "nothing was changed: t would be left with 2 of 3 replicas on machines of their own, fewer "
        "than min.insync.replicas of t: add a machine, uncordon one, or give the topics fewer "
        "replicas with 'headrace reassign execute'"
    )


def test_a_replica_on_another_dead_broker_is_told():
    with pytest.raises(CommandError, match=r"t-0 also have replicas on dead broker 2, so that"):
        plan_drain(layout([(1, 2, 3)], dead={2}), {1})


def test_a_partition_without_a_leader_is_told():
    with pytest.raises(CommandError, match="t-0 have no leader to copy from: start the brokers"):
        plan_drain(layout([(1,)], dead={1}), {1})


def test_a_move_that_leads_away_already_is_left_to_end():
    def moving(target):
        partition = PlacedPartition(
            replicas=(1, 2), leader=1, isr=frozenset({1, 2}), target=tuple(target)
        )
        return Layout(brokers=layout([], dead={3}).brokers, partitions={T0: partition})

    assert plan_drain(moving((2, 4)), {1}).moves == {T0: (2, 4)}
    # It could not end: its target is dead.
    assert plan_drain(moving((2, 3)), {1}).moves == {T0: (2, 4)}
    # It leads to the broker.
    assert plan_drain(moving((4, 2)), {4}).moves == {T0: (1, 2)}
