"""Moves of preferred leaders, with a chain where no direct one helps."""

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.ids import TopicPartition
from storage_engine.tests.tools.placement.layouts import counts_of, layout
from storage_engine.tools.placement.loads import Load
from storage_engine.tools.placement.rebalance_plan import plan_rebalance


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


def test_a_chain_moves_leaders_where_no_replica_is_on_a_broker_with_room():
    # Broker 1 leads three; it shares partitions with 2 alone, and 2 with 3.
    cluster = layout([(1, 2), (1, 2), (1, 2), (2, 3)], brokers=3)
    plan = plan_rebalance(cluster, [Load.LEADERS], 0.0)
    assert plan == {TopicPartition("t", 0): (2, 1), TopicPartition("t", 3): (3, 2)}
