"""Offsets of groups and batches that wait until their coordinator has enlisted or verified them,
and how much may wait (KIP-890)."""

from collections.abc import Callable
from typing import Any

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.requests import ANSWER_MS, make_batch
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.tests.broker.support import refused
from storage_engine.tests.broker.transactions.enlisting_support import (
    OFFSETS,
    A,
    B,
    C,
    away_from_coordinator,
    cluster,
    code_of,
    commit_offsets,
    end_of,
    producer,
    record_of,
    send_offsets,
)
from storage_engine.tests.broker.transactions.test_transactions import settle

__all__ = ["cluster"]


@pytest.mark.parametrize("fails_over", [True, False])
def test_offsets_are_enlisted_by_their_coordinator(cluster, fails_over):
    first = producer(cluster)
    commit_offsets(cluster, first)
    first.write(A, b"1")
    assert record_of(cluster, first).partitions == {A, OFFSETS}
    if fails_over:
        killed = cluster.state(OFFSETS).leader
        cluster[killed].kill()
        cluster.loop.run_until(lambda: cluster.state(OFFSETS).leader != killed, limit_ms=60_000)
        commit_offsets(cluster, first)
    old = first.epoch
    first.end(commits=True)
    settle(cluster, A, OFFSETS)
    end = end_of(cluster, OFFSETS)
    first.epoch = old
    assert send_offsets(cluster, first) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_of(cluster, OFFSETS) == end
    assert record_of(cluster, first).partitions == frozenset()


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_older_versions_enlist_no_offsets(cluster, version, code):
    first = producer(cluster)
    commit_offsets(cluster, first)
    first.end(commits=True)
    cluster.loop.run_until(lambda: record_of(cluster, first).state.is_complete)
    # Until that is replicated, too.
    cluster.loop.run_for(1_000)
    assert send_offsets(cluster, first, version=version) is code


def waiting_for_the_own_coordinator(cluster) -> tuple[Any, Callable[[], list[Any]]]:
    """A broker that leads a partition and coordinates, alone; and what sends a batch of about one
    kilobyte there once more."""
    by = producer(cluster)
    tp = next(tp for tp in (A, B, C) if cluster.state(tp).leader == by.coordinator())
    leader = cluster[cluster.state(tp).leader]
    cluster.loop.run_for(2_000)
    for broker in cluster.brokers:
        if broker is not leader:
            broker.pause()
    batch = bytes(
        make_batch(payload=bytes(1000), producer=(by.producer_id, by.epoch, 0), attributes=0x10)
    )

    def send() -> list[Any]:
        part = ProducePartition(*tp, memoryview(bytearray(batch)))
        request = ProduceRequest(by.transactional_id, -1, ANSWER_MS, [part])
        return cluster.ask(leader.id, PRODUCE, 12, request)

    return leader, send


def test_a_coordinator_on_the_leaders_own_broker_has_no_longer_to_answer_than_another(cluster):
    leader, send = waiting_for_the_own_coordinator(cluster)
    asked = [send()]
    for _ in range(3):
        cluster.loop.run_for(1_000)
        asked.append(send())
    cluster.loop.run_for(1_500)
    assert not any(asked)
    cluster.loop.run_for(1_000)
    assert [code_of(cluster, each) for each in asked] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 4
    assert leader.parts.coordinators.verifier._room.used == 0
    for broker in cluster.brokers:
        if broker is not leader:
            broker.resume()
    cluster.loop.run_for(10_000)
    assert code_of(cluster, send()) is ErrorCode.NONE


def test_batches_that_wait_for_a_coordinator_take_so_much_memory_at_most(cluster):
    leader, send = waiting_for_the_own_coordinator(cluster)
    # One alone gets half of it.
    leader.parts.coordinators.verifier._room.most = 10_000
    asked = [send() for _ in range(4)]
    cluster.loop.run_for(1_000)
    assert [bool(each) for each in asked] == [False, False, True, True]
    assert code_of(cluster, asked[3]) is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.loop.run_for(5_000)
    assert all(asked) and leader.parts.coordinators.verifier._room.used == 0


def test_a_batch_that_is_verified_too_late_does_not_land_behind_its_marker(cluster):
    """Else it would open a transaction that nobody ends."""
    first = SimulatedProducer(cluster, "p")
    first.init()
    tp = away_from_coordinator(cluster, first)
    first.add(tp)
    leader = cluster[cluster.state(tp).leader]
    verifier = leader.parts.coordinators.verifier
    settle_now = verifier._settle
    verifier._settle = lambda *answer: leader.loop.call_later(2_000, lambda: settle_now(*answer))
    answers = first.send(tp, b"late", 0)
    cluster.loop.run_for(100)
    first.end(commits=False)
    settle(cluster, tp)
    cluster.loop.run_until(lambda: end_of(cluster, tp) == 1, limit_ms=1_500)
    assert not answers
    assert code_of(cluster, answers) is ErrorCode.NOT_ENOUGH_REPLICAS
    verifier._settle = settle_now
    with refused(ErrorCode.INVALID_TXN_STATE):
        first.write(tp, b"late")
    settle(cluster, tp)
    assert end_of(cluster, tp) == 1
