"""Commits of offsets that wait for a coordinator which takes seconds to read its log: a group, and
a producer with the offsets of that group in its transaction."""

from typing import Any

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.coordinators.state_load import StateLoad
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.messages import add_offsets_to_txn, txn_offset_commit
from storage_engine.protocol.state import group_batches
from storage_engine.tests.broker.groups.test_consumer_groups import (
    GROUP,
    PARTITIONS,
    GroupClient,
    offsets_partition,
)
from storage_engine.tests.broker.support import cluster_fixture

LOAD_MS = 4_000
"""Less than requests wait for a load."""


cluster = cluster_fixture(
    "a",
    offsets_topic_num_partitions=str(PARTITIONS),
    transaction_state_log_num_partitions=str(PARTITIONS),
    min_insync_replicas="2",
    auto_leader_rebalance_enable="false",
)


@pytest.fixture
def slow_loads(cluster, monkeypatch) -> None:
    """From now on it takes seconds to read a log of offsets."""
    begin = StateLoad._begin

    def begin_later(self: StateLoad, codec: Any) -> None:
        wait_ms = LOAD_MS if codec is group_batches else 0
        cluster.loop.call_later(wait_ms, lambda: begin(self, codec))

    monkeypatch.setattr(StateLoad, "_begin", begin_later)


def group_with_an_offset(cluster: SimulatedCluster) -> GroupClient:
    client = GroupClient(cluster)
    assert client.commit(1) is ErrorCode.NONE
    return client


def producer_in_transaction(cluster: SimulatedCluster) -> SimulatedProducer:
    """A producer with the group's offsets in its transaction, and with another coordinator than the
    group has."""
    for number in range(50):
        made = SimulatedProducer(cluster, f"p{number}")
        made.init()
        if made.coordinator() != cluster.state(offsets_partition()).leader:
            break
    enlist_offsets(made)
    return made


def enlist_offsets(producer: SimulatedProducer) -> None:
    request = add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=GROUP,
    )
    producer.ask_coordinator(add_offsets_to_txn.API, 3, request, lambda a: [a.error_code])


def offset_in_transaction(producer: SimulatedProducer, offset: int) -> Any:
    item = txn_offset_commit.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = item.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[item(name="a", partitions=[partition])],
    )


def send_offset(producer: SimulatedProducer, offset: int) -> list[Any]:
    cluster = producer.cluster
    coordinator = cluster.state(offsets_partition()).leader
    request = offset_in_transaction(producer, offset)
    return cluster.ask(coordinator, txn_offset_commit.API, 3, request)


def code_of(cluster: SimulatedCluster, answers: list[Any]) -> ErrorCode:
    return ErrorCode.of(cluster.answer(answers).topics[0].partitions[0].error_code)


def log_of_offsets(cluster: SimulatedCluster) -> Any:
    """The replica that leads."""
    tp = offsets_partition()
    return cluster[cluster.state(tp).leader].replicas.get(tp)


def lose_the_coordinator(cluster: SimulatedCluster) -> None:
    """Until another broker begins to read the log."""
    tp = offsets_partition()
    old = cluster.state(tp).leader
    cluster[old].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.state(tp).leader not in (-1, old))
    cluster.loop.run_until(lambda: log_of_offsets(cluster).leader is not None)
    cluster.loop.run_for(100)


def assert_nothing_is_open(cluster: SimulatedCluster) -> None:
    led = log_of_offsets(cluster)
    assert led.log.producer_state.transactions.ongoing == {}
    assert led.last_stable_offset == led.log.log_end_offset
