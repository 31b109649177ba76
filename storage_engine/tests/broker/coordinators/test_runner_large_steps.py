"""A step of a coordinator that has more records than the log takes as one batch."""

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.coordinators import state_topic
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import add_partitions_to_txn
from storage_engine.tests.broker.transactions.test_batch_commits import (
    STATE,
    STATE_PARTITIONS,
    Task,
)
from storage_engine.tests.broker.transactions.test_transactions import aborted, settle

PARTITIONS = 20
MEMBERS = 40
BATCH_MAX_BYTES = 3_000
TIMEOUT_MS = 20_000


def enlist_all(task: Task) -> None:
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=task.transactional_id,
        v3_and_below_producer_id=task.producer_id,
        v3_and_below_producer_epoch=task.epoch,
        v3_and_below_topics=[topic(name="a", partitions=list(range(PARTITIONS)))],
    )
    task.ask_coordinator(
        add_partitions_to_txn.API,
        3,
        request,
        lambda answer: [
            row.partition_error_code
            for each in answer.results_by_topic_v3_and_below
            for row in each.results_by_partition
        ],
    )


def test_a_tick_that_aborts_many_members_is_stored_in_several_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(state_topic, "STATE_MESSAGE_MAX_BYTES", BATCH_MAX_BYTES)
    cluster = SimulatedCluster(
        tmp_path,
        transaction_state_log_num_partitions=str(STATE_PARTITIONS),
        transaction_abort_timed_out_transaction_cleanup_interval_ms="10000",
    )
    assert cluster.create_topic("a", PARTITIONS).error_code == 0
    tasks = [Task(cluster, batch, timeout_ms=TIMEOUT_MS).join() for batch in range(MEMBERS)]
    for task in tasks:
        enlist_all(task)
    first = TopicPartition("a", 0)
    tasks[0].write(first, b"row")
    coordinators = cluster[cluster.state(STATE).leader].parts.coordinators.transactions
    runner = coordinators._runners[STATE]
    records = sum(1 for _ in runner.coordinator.batches.members())
    assert records * 4 * PARTITIONS > BATCH_MAX_BYTES
    cluster.loop.run_for(TIMEOUT_MS + 15_000)
    settle(cluster, first)
    assert [producer_id for producer_id, _ in aborted(cluster, first)] == [tasks[0].producer_id]
    assert coordinators._runners[STATE] is runner
    assert list(runner.coordinator.batches.members()) == []
    cluster.close()
