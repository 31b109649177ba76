"""Transactions in a cluster, from the markers on: what is stable, who waits for it, and that the
next leader knows what the last one knew (KIP-98).
"""

import random

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import fetch_request, produce_request
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.log.append_rules import AppendResult
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.list_offsets import API as LIST_OFFSETS
from storage_engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.log.support import open_log
from storage_engine.tests.log.transaction_support import (
    aborted_of,
    copy,
    encoded,
    next_sequence,
    seen,
    transactional,
    transactions_of,
)

TP = TopicPartition("t", 0)
KEY = (b"k", b"v")


def make_topic(cluster: SimulatedCluster) -> None:
    assert cluster.create_topic("t", segment_bytes="2000").error_code == 0
    assert cluster.produced_when_there(TP, b"first") == 0
    cluster.wait_in_sync(TP, 1, 2, 3)


cluster = cluster_fixture(prepare=make_topic)


def leader(cluster):
    return cluster[cluster.state(TP).leader]


def log_of(broker):
    return broker.logs.logs[TP]


def write(cluster, producer: int) -> int:
    """A batch of the producer's transaction, as the coordinator will let it through."""
    broker = leader(cluster)
    batch = encoded([KEY], (producer, 0, next_sequence(log_of(broker), producer)))
    partition = broker.replicas.get(TP)
    outcome = partition.append(transactional(batch), acks=-1, in_transaction=True)
    assert isinstance(outcome, AppendResult), outcome
    return outcome.base_offset


def end(cluster, producer: int, *, commits: bool, coordinator_epoch: int = 0) -> int:
    marker = TransactionMarker(commits, coordinator_epoch)
    partition = leader(cluster).replicas.get(TP)
    return partition.append_marker(producer, 0, marker).base_offset


def fetch(cluster, offset: int, *, isolation: int = 1, wait_ms: int = 0):
    request = fetch_request(TP.topic, TP.partition, offset, wait_ms=wait_ms)
    request = request._replace(isolation_level=isolation)
    return cluster.ask(leader(cluster).id, FETCH, 11, request)


def latest(cluster, isolation: int) -> int:
    wanted = ListOffsetsPartition(TP.topic, TP.partition, -1)
    request = ListOffsetsRequest([wanted], isolation_level=isolation)
    return (
        cluster.answer(cluster.ask(leader(cluster).id, LIST_OFFSETS, 5, request))
        .partitions[0]
        .offset
    )


def settle(cluster) -> None:
    """Until all replicas have everything, and know it."""
    cluster.loop.run_until(
        lambda: (
            leader(cluster).replicas.get(TP).high_watermark
            == log_of(leader(cluster)).log_end_offset
        )
    )


def test_read_committed_is_bounded_and_told_what_was_aborted(cluster):
    write(cluster, 1)
    write(cluster, 2)
    end(cluster, 1, commits=False)
    settle(cluster)
    answer = cluster.answer(fetch(cluster, 0)).partitions[0]
    assert (answer.high_watermark, answer.last_stable_offset) == (4, 2)
    assert b"first" in bytes(answer.records) and answer.aborted_transactions == [(1, 1)]
    assert (latest(cluster, 0), latest(cluster, 1)) == (4, 2)
    unbounded = cluster.answer(fetch(cluster, 2, isolation=0)).partitions[0]
    assert unbounded.last_stable_offset == 2 and unbounded.aborted_transactions is None
    assert read_header(bytes(unbounded.records)).producer_id == 2
    bounded = cluster.answer(fetch(cluster, 2)).partitions[0]
    assert not bounded.records and not bounded.error_code
    end(cluster, 2, commits=True)
    settle(cluster)
    answer = cluster.answer(fetch(cluster, 2)).partitions[0]
    # Its marker, at offset 3, is among what was fetched.
    assert answer.aborted_transactions == [(1, 1)] and answer.last_stable_offset == 5
    assert latest(cluster, 1) == 5


def test_a_waiting_read_committed_is_answered_when_the_marker_is_replicated(cluster):
    write(cluster, 1)
    settle(cluster)
    answers = fetch(cluster, 1, wait_ms=30_000)
    cluster.loop.run_for(1000)
    write(cluster, 2)
    settle(cluster)
    cluster.loop.run_for(1000)
    assert not answers
    for other in cluster.brokers:
        if other is not leader(cluster):
            cluster.network.cut(leader(cluster).id, other.id)
    end(cluster, 1, commits=True)
    cluster.loop.run_for(200)
    assert not answers
    cluster.network.heal()
    answer = cluster.answer(answers).partitions[0]
    assert answer.last_stable_offset == 2 and read_header(bytes(answer.records)).producer_id == 1


def test_what_is_not_stable_does_not_count_for_min_bytes(cluster):
    write(cluster, 1)
    settle(cluster)
    request = fetch_request(TP.topic, TP.partition, 0, wait_ms=5_000)
    request = request._replace(isolation_level=1, min_bytes=100)
    answers = cluster.ask(leader(cluster).id, FETCH, 11, request)
    cluster.loop.run_for(4_000)
    assert not answers
    assert b"first" in bytes(cluster.answer(answers).partitions[0].records)


def test_clients_are_still_refused(cluster):
    batch = transactional(encoded([KEY], (1, 0, 0)))
    request = produce_request(TP.topic, TP.partition, batch, acks=-1)
    answers = cluster.ask(leader(cluster).id, PRODUCE, 8, request)
    code = cluster.answer(answers).partitions[0].error_code
    assert ErrorCode.of(code) is ErrorCode.INVALID_TXN_STATE
    assert log_of(leader(cluster)).log_end_offset == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_new_leader_knows_what_a_replay_of_its_log_says(cluster, tmp_path, seed):
    generator = random.Random(seed)
    for number in range(150):
        producer = generator.randrange(1, 5)
        try:
            if generator.random() < 0.6:
                write(cluster, producer)
            else:
                end(cluster, producer, commits=generator.random() < 0.5)
        except KafkaError as refused:
            # Between two leaders, or with too few replicas in sync.
            assert refused.code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            cluster.loop.run_for(500)
            continue
        if generator.random() < 0.2:
            cluster.loop.run_for(generator.randrange(200))
        if number % 50 == 49:
            dead = leader(cluster)
            dead.kill()
            cluster.loop.run_until(
                lambda dead=dead: (
                    cluster.state(TP).leader not in (-1, dead.id)
                    and leader(cluster).replicas.get(TP).leader is not None
                )
            )
            dead.start()
    cluster.wait_in_sync(TP, 1, 2, 3)
    settle(cluster)
    cluster.loop.run_for(2_000)
    logs = [log_of(broker) for broker in cluster.brokers]
    replayed = open_log(tmp_path / "replayed")
    copy(logs[0], replayed)
    assert aborted_of(replayed) and replayed.producer_state.transactions.ongoing
    stable = replayed.last_stable_offset(replayed.log_end_offset)
    for broker, log in zip(cluster.brokers, logs, strict=True):
        assert transactions_of(log) == transactions_of(replayed)
        assert aborted_of(log) == aborted_of(replayed)
        assert broker.replicas.get(TP).last_stable_offset == stable
        assert seen(log, 1) == seen(replayed, 1)
