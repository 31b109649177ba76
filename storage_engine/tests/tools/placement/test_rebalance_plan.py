"""Plans that even out the load, beside what must be true of them, told from the plan alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
