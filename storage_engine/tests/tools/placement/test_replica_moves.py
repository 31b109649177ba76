"""Moves and exchanges of replicas."""

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.ids import TopicPartition
from storage_engine.tests.tools.placement.layouts import counts_of, layout
from storage_engine.tools.placement.loads import Load
from storage_engine.tools.placement.rebalance_plan import plan_rebalance


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


def test_replicas_stay_as_even_on_racks_as_they_are():
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "b"}
    cluster = layout([(1, 2, 3, 4)] * 5, racks=racks, brokers=5)
    plan = plan_rebalance(cluster, [Load.REPLICAS], 0.0)
    assert plan, "broker 5 gets its share"
    for replicas in plan.values():
        assert sorted(racks[broker] for broker in replicas) == ["a", "a", "b", "b"]
