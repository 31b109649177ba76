"""Plans that even out the load, beside what must be true of them, told from the plan alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.ids import TopicPartition
from storage_engine.tests.tools.placement.layouts import clusters, counts_of, layout, machines_of
from storage_engine.tools.placement.loads import Load, bands, beyond
from storage_engine.tools.placement.rebalance_plan import plan_rebalance

EVERY = tuple(Load)


@given(clusters(), st.lists(st.sampled_from(EVERY), min_size=1, max_size=3, unique=True))
def test_a_plan_keeps_the_rule_and_adds_to_no_load_that_counts(cluster, by):
    plan = plan_rebalance(cluster, by, 0.1)
    takers = {b for b, place in cluster.brokers.items() if place.takes_replicas}
    for tp, target in plan.items():
        before = cluster.partitions[tp].replicas
        assert target != before
        assert len(set(target)) == len(target) == len(before)
        assert len(set(machines_of(cluster, target))) == len(target)
        assert set(target).difference(before) <= takers
        assert target[0] == before[0] or target[0] in takers
        assert all(cluster.brokers[broker].is_alive for broker in before)
        if by == [Load.LEADERS]:
            assert sorted(target) == sorted(before)
    limits = bands(cluster, by, 0.1)
    before, after = beyond(cluster, {}, limits), beyond(cluster, plan, limits)
    assert all(after[load] <= before[load] + 1e-6 for load in by)
    if plan:
        assert sum(after.values()) < sum(before.values())


@given(clusters(), st.sampled_from(EVERY))
def test_what_is_near_the_mean_stays(cluster, load):
    limits = bands(cluster, [load], 0.1)
    if sum(beyond(cluster, {}, limits).values()) == 0:
        assert plan_rebalance(cluster, [load], 0.1) == {}


@given(st.integers(2, 6), st.integers(1, 3), st.integers(1, 30), st.data())
def test_leaders_without_constraints_are_even(brokers, factor, partitions, data):
    """Each partition may be led by each broker."""
    everywhere = list(range(1, brokers + 1))
    replicas = [data.draw(st.permutations(everywhere)) for _ in range(partitions)]
    cluster = layout(replicas, brokers=brokers)
    plan = plan_rebalance(cluster, [Load.LEADERS], 0.0)
    leaders = counts_of(cluster, plan)["leaders"]
    found = [leaders[broker] for broker in everywhere]
    assert max(found) - min(found) <= 1
    # No more than those above the mean have to change.
    before = counts_of(cluster, {})["leaders"]
    least = max(
        sum(max(before[b] - -(-partitions // brokers), 0) for b in everywhere),
        sum(max(partitions // brokers - before[b], 0) for b in everywhere),
    )
    assert len(plan) == least


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 40))
def test_new_brokers_get_their_share_with_the_least_movement(new, factor, partitions):
    old = list(range(1, 5))
    replicas = [[old[(n + j) % 4] for j in range(factor)] for n in range(partitions)]
    cluster = layout(replicas, brokers=4 + new)
    plan = plan_rebalance(cluster, [Load.REPLICAS], 0.0)
    found = counts_of(cluster, plan)["replicas"]
    counts = [found[broker] for broker in range(1, 5 + new)]
    assert max(counts) - min(counts) <= 1
    moved = sum(len(set(t).difference(cluster.partitions[tp].replicas)) for tp, t in plan.items())
    before = counts_of(cluster, {})["replicas"]
    mean = partitions * factor / (4 + new)
    above = sum(max(before[b] - -int(-mean // 1), 0) for b in old)
    below = new * int(mean)
    assert moved <= max(above, below) + new


def test_bytes_are_evened_by_an_exchange_where_numbers_must_stay():
    sizes = {0: 900, 1: 800, 2: 100, 3: 200}
    cluster = layout([(1,), (1,), (2,), (2,)], brokers=2, sizes=sizes)
    plan = plan_rebalance(cluster, [Load.REPLICAS, Load.BYTES], 0.1)
    after = counts_of(cluster, plan)
    assert after["replicas"] == {1: 2, 2: 2}
    assert max(after["bytes"].values()) <= 1100
    assert len(plan) == 2


def test_replicas_that_share_a_machine_are_parted():
    machines = {1: "h1", 2: "h1", 3: "h2", 4: "h2"}
    cluster = layout([(1, 2)], machines=machines)
    assert plan_rebalance(cluster, [Load.REPLICAS], 0.1) == {TopicPartition("t", 0): (1, 3)}


def test_a_cordoned_broker_gets_nothing_and_counts_for_nothing():
    replicas = [(1, 2)] * 4 + [(3, 1)] * 2
    cluster = layout(replicas, brokers=4, cordoned={4})
    plan = plan_rebalance(cluster, [Load.REPLICAS, Load.LEADERS], 0.0)
    after = counts_of(cluster, plan)
    assert after["replicas"] == {1: 4, 2: 4, 3: 4}
    assert after["leaders"] == {1: 2, 2: 2, 3: 2}


@pytest.mark.slow
def test_a_large_cluster_is_planned_in_seconds():
    machines = {b: f"h{(b - 1) // 16}" for b in range(1, 49)}
    # What three uneven hosts look like after a fourth has come.
    replicas = [(1 + n % 16, 17 + n % 16, 33 + n % 8) for n in range(1000)]
    cluster = layout(replicas, brokers=48, machines=machines)
    plan = plan_rebalance(cluster, [Load.REPLICAS, Load.LEADERS], 0.1)
    found = counts_of(cluster, plan)
    assert max(found["replicas"][b] for b in range(33, 49)) <= 69
    leaders = [found["leaders"][b] for b in range(1, 49)]
    assert max(leaders) <= 23
    assert min(leaders) >= 18
