"""A transaction that no coordinator knows is ended by the leader of its partition; one that a
coordinator knows, or might know, never is."""

import shutil
from dataclasses import replace

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.coordinators.runner import CoordinatorRunner
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.core.transactions.transaction_state import member_transactional_id
from storage_engine.core.transactions.verification_guard import SEARCH_PREFIX, search_name
from storage_engine.tests.broker.support import cluster_fixture, refused
from storage_engine.tests.broker.transactions.enlisting_support import (
    OFFSETS,
    commit_offsets,
    record_of,
)
from storage_engine.tests.broker.transactions.test_transactions import (
    aborted,
    log_of,
    producer,
    settle,
    state_of,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
LONG_MS = 60_000
"""More than a hundred looks."""


cluster = cluster_fixture(
    "a",
    "b",
    transaction_state_log_num_partitions="3",
    transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
    offsets_topic_num_partitions="1",
)


def lose_state(cluster: SimulatedCluster, *partitions: TopicPartition) -> None:
    """All brokers are killed, and these logs are gone from all of their disks."""
    for broker in cluster.brokers:
        broker.kill()
    for broker in cluster.brokers:
        for tp in partitions:
            shutil.rmtree(broker.folder / str(tp), ignore_errors=True)
        broker.start()
    cluster.loop.run_until(
        lambda: all(
            cluster.state(tp).leader != -1 and log_of(cluster, tp) is not None
            for tp in (A, B, *partitions)
        )
    )


def left_open(cluster: SimulatedCluster, *, enlists: bool = True) -> SimulatedProducer:
    first = producer(cluster, "p", timeout_ms=900_000, enlists=enlists)
    if enlists:
        first.add(A, B)
    first.write(A, b"lost")
    first.write(B, b"lost")
    return first


def ended_by_leaders(cluster: SimulatedCluster) -> int:
    return sum(b.parts.coordinators.hanging_transactions.ended for b in cluster.brokers)


@pytest.mark.parametrize("enlists", [True, False])
def test_a_transaction_whose_coordinator_has_lost_it_is_aborted_and_readers_go_on(cluster, enlists):
    first = left_open(cluster, enlists=enlists)
    lose_state(cluster, state_of("p"))
    settle(cluster, A, B)
    assert aborted(cluster, A) == aborted(cluster, B) == [(first.producer_id, 0)]
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        first.end(commits=True)
    with pytest.raises(KafkaError):
        first.write(A, b"late")
    second = producer(cluster, "p")
    second.add(A)
    second.write(A, b"kept")
    second.end(commits=True)
    settle(cluster, A)
    assert aborted(cluster, A) == [(first.producer_id, 0)]


def test_offsets_of_a_lost_transaction_are_dropped(cluster):
    assert cluster.create_topic("t").error_code == 0
    first = producer(cluster, "p", timeout_ms=900_000, enlists=False)
    commit_offsets(cluster, first)
    lose_state(cluster, state_of("p"))
    settle(cluster, OFFSETS)
    assert aborted(cluster, OFFSETS) == [(first.producer_id, 0)]


def test_a_transaction_that_was_ended_without_a_partition_is_aborted_there(cluster):
    """The log of the partition has lost the marker, or that of the coordinator the partition."""
    first = left_open(cluster)
    coordinators = cluster[first.coordinator()].parts.coordinators.transactions
    entry = coordinators.coordinator_of("p").producers._entries["p"]
    entry.record = replace(entry.record, partitions=frozenset([A]))
    settle(cluster, B)
    assert aborted(cluster, B) == [(first.producer_id, 0)]
    assert log_of(cluster, A).last_stable_offset == 0
    first.end(commits=True)
    settle(cluster, A)
    assert aborted(cluster, A) == []


def test_what_a_coordinator_knows_is_left_alone_however_long_it_is_open(cluster):
    first = left_open(cluster)
    cluster.loop.run_for(LONG_MS)
    cluster[first.coordinator()].kill(session_ends_at_once=True)
    cluster.loop.run_for(LONG_MS)
    assert ended_by_leaders(cluster) == 0
    first.end(commits=True)
    settle(cluster, A, B)
    assert aborted(cluster, A) == aborted(cluster, B) == []


def test_what_is_being_ended_is_left_alone_while_its_markers_are_under_way(cluster):
    first = left_open(cluster)
    for broker in cluster.brokers:
        for runner in broker.parts.coordinators.transactions._runners.values():
            runner._carrier.sender.send = lambda order: None
    first.end(commits=True)
    assert record_of(cluster, first).state.is_ending
    cluster.loop.run_for(LONG_MS)
    assert ended_by_leaders(cluster) == 0
    cluster[first.coordinator()].kill(session_ends_at_once=True)
    settle(cluster, A, B)
    assert aborted(cluster, A) == aborted(cluster, B) == []


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE], ids=str
)
def test_nothing_is_ended_while_one_coordinator_can_not_answer(cluster, monkeypatch, code):
    """It may be the one of the transaction: it is deposed, or its replicas are away."""
    first = left_open(cluster)
    lost = state_of("p")
    others = [TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in range(3)]
    silent = next(tp for tp in others if tp != lost)
    refusal, refused = CoordinatorRunner._refusal_where, []

    def refuse(self, *, writes: bool) -> ErrorCode:
        if self.topic_partition != silent:
            return refusal(self, writes=writes)
        refused.append(code)
        return code

    with monkeypatch.context() as patched:
        patched.setattr(CoordinatorRunner, "_refusal_where", refuse)
        lose_state(cluster, lost)
        cluster.loop.run_for(20_000)
        assert refused
        assert ended_by_leaders(cluster) == 0
    settle(cluster, A, B)
    assert aborted(cluster, A) == [(first.producer_id, 0)]


def test_a_transaction_that_began_after_the_question_is_left_alone(cluster):
    """Under the same epoch: the first one ends, and the next one begins before the answers come."""
    first = left_open(cluster)
    hanging = cluster[cluster.state(A).leader].parts.coordinators.hanging_transactions
    cluster.loop.run_until(lambda: bool(hanging._open))
    asked = list(hanging._open.values())
    first.end(commits=True)
    settle(cluster, A, B)
    first.add(A)
    first.write(A, b"of the next one")
    for each in asked:
        hanging._end(each)
    first.end(commits=True)
    settle(cluster, A)
    assert aborted(cluster, A) == []


def test_a_transaction_that_goes_on_after_the_question_is_left_alone(cluster):
    """Its coordinator has lost it, and may be told of the partition again."""
    first = left_open(cluster)
    hanging = cluster[cluster.state(A).leader].parts.coordinators.hanging_transactions
    cluster.loop.run_until(lambda: bool(hanging._open))
    asked = list(hanging._open.values())
    for each in asked:
        each.asked_with = hanging._last_offset(*each.key)
    first.write(A, b"more")
    for each in asked:
        if each.key[0] == A:
            hanging._end(each)
    assert ended_by_leaders(cluster) == 0
    first.end(commits=True)
    settle(cluster, A, B)
    assert aborted(cluster, A) == []


@pytest.mark.parametrize(
    "name", [search_name(0), f"{SEARCH_PREFIX}x", member_transactional_id("s")]
)
def test_no_producer_gets_a_name_by_which_brokers_ask(cluster, name):
    with refused(ErrorCode.INVALID_REQUEST):
        producer(cluster, name)
