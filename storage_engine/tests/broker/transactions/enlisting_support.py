"""Producers that enlist nothing, in a simulated cluster of three leaders, and what tests ask of
them (KIP-890, second part)."""

from collections.abc import Callable
from typing import Any

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import TransactionRecord
from storage_engine.protocol.messages import find_coordinator, txn_offset_commit
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.transactions.test_transactions import aborted, log_of

A, B, C = (TopicPartition("t", number) for number in range(3))
GROUP = "group"
OFFSETS = TopicPartition("__consumer_offsets", 0)
STATE = TopicPartition("__transaction_state", 0)


def make_topic(cluster: SimulatedCluster) -> None:
    """The three partitions have three leaders."""
    assert cluster.create_topic("t", partitions=3).error_code == 0


cluster = cluster_fixture(
    prepare=make_topic,
    transaction_state_log_num_partitions="1",
    transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
    offsets_topic_num_partitions="1",
)


def producer(cluster, name: str = "p", **how) -> SimulatedProducer:
    made = SimulatedProducer(cluster, name, enlists=False, **how)
    made.init()
    return made


def end_of(cluster, tp) -> int:
    return log_of(cluster, tp).log.log_end_offset


def aborted_at(cluster, tp) -> list[int]:
    """The first offsets of all aborted transactions."""
    return [offset for _, offset in aborted(cluster, tp)]


def record_of(cluster, by: SimulatedProducer) -> TransactionRecord:
    """The transaction as its coordinator knows it."""
    coordinators = cluster[by.coordinator()].parts.coordinators.transactions
    record: TransactionRecord = coordinators.coordinator_of(by.transactional_id).producers.get(
        by.transactional_id
    )
    return record


def code_of(cluster, answers: list[Any]) -> ErrorCode:
    return ErrorCode.of(cluster.answer(answers).partitions[0].error_code)


def away_from_coordinator(cluster, by: SimulatedProducer) -> TopicPartition:
    """A partition that is led elsewhere."""
    coordinator = by.coordinator()
    return next(tp for tp in (A, B, C) if cluster.state(tp).leader != coordinator)


def hold_answers(cluster, tp) -> Callable[[], None]:
    """Keep the answers of coordinators from the partition's leader until the result is called."""
    verifier = cluster[cluster.state(tp).leader].parts.coordinators.verifier
    settle_now = verifier._settle
    held: list[tuple[Any, ...]] = []
    verifier._settle = lambda *answer: held.append(answer)

    def release() -> None:
        verifier._settle = settle_now
        for answer in held:
            settle_now(*answer)

    return release


def send_offsets(cluster, by: SimulatedProducer, *, version: int = 5) -> ErrorCode:
    """5 for the group's one partition, of its coordinator, sent once."""
    item = txn_offset_commit.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=by.transactional_id,
        group_id=GROUP,
        producer_id=by.producer_id,
        producer_epoch=by.epoch,
        topics=[
            item(
                name="t",
                partitions=[
                    item.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5, committed_metadata=None
                    )
                ],
            )
        ],
    )
    leader = cluster.state(OFFSETS).leader
    answer = by.answered(cluster.ask(leader, txn_offset_commit.API, version, request))
    if answer is None:
        return ErrorCode.NETWORK_EXCEPTION
    return ErrorCode.of(answer.topics[0].partitions[0].error_code)


def commit_offsets(cluster, by: SimulatedProducer) -> None:
    """As `send_offsets`, as often as it takes."""
    request = find_coordinator.FindCoordinatorRequest(key=GROUP, key_type=0)
    for _ in range(200):
        serving = next(broker for broker in cluster.brokers if broker.serving)
        found = by.answered(cluster.ask(serving.id, find_coordinator.API, 3, request))
        if found is not None and not found.error_code:
            code = send_offsets(cluster, by)
            if code is ErrorCode.NONE:
                return
            assert code.retriable, code
        cluster.loop.run_for(50)
    raise AssertionError("the offsets were never taken")
