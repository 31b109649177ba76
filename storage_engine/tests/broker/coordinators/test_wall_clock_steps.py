"""The wall clock of a coordinator's broker is set: by NTP, or since its machine was suspended. How
long something takes is measured by the monotonic one."""

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.transactions.test_batch_commits import (
    STATE_PARTITIONS,
    Task,
    commit,
)
from storage_engine.tests.broker.transactions.test_transactions import aborted, settle

A = TopicPartition("a", 0)
TIMEOUT_MS = 10_000
HOUR_MS = 3_600_000
both_ways = pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS], ids=["forward", "back"])


cluster = cluster_fixture(
    "a",
    transaction_state_log_num_partitions=str(STATE_PARTITIONS),
    transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
)


def set_wall_clocks(cluster: SimulatedCluster, step_ms: int) -> None:
    for broker in cluster.brokers:
        wall_ms = broker.loop.wall_ms
        broker.loop.wall_ms = lambda wall_ms=wall_ms: wall_ms() + step_ms


@both_ways
def test_the_members_of_a_batch_stay_open_for_their_time(cluster, step_ms):
    task = Task(cluster, 0, timeout_ms=TIMEOUT_MS).join()
    task.add(A)
    task.write(A, b"row")
    set_wall_clocks(cluster, step_ms)
    cluster.loop.run_for(TIMEOUT_MS - 2_000)
    assert commit(cluster, 0, task) is ErrorCode.NONE
    settle(cluster, A)
    assert aborted(cluster, A) == []
    left_alone = Task(cluster, 1, timeout_ms=TIMEOUT_MS).join()
    left_alone.add(A)
    left_alone.write(A, b"row")
    set_wall_clocks(cluster, -step_ms)
    cluster.loop.run_for(TIMEOUT_MS + 2_000)
    settle(cluster, A)
    assert [producer_id for producer_id, _ in aborted(cluster, A)] == [left_alone.producer_id]


@both_ways
def test_a_producer_s_transaction_stays_open_for_its_time(cluster, step_ms):
    first = SimulatedProducer(cluster, "p", timeout_ms=TIMEOUT_MS)
    first.init()
    first.add(A)
    first.write(A, b"1")
    set_wall_clocks(cluster, step_ms)
    cluster.loop.run_for(TIMEOUT_MS - 2_000)
    first.end(commits=True)
    settle(cluster, A)
    assert aborted(cluster, A) == []
    first.add(A)
    first.write(A, b"2")
    # Before the coordinator has looked at it for the first time.
    set_wall_clocks(cluster, -step_ms)
    cluster.loop.run_for(TIMEOUT_MS - 2_000)
    first.write(A, b"3")
    cluster.loop.run_for(4_000)
    settle(cluster, A)
    assert [producer_id for producer_id, _ in aborted(cluster, A)] == [first.producer_id]
    with pytest.raises(KafkaError):
        first.end(commits=True)
