"""An exception that nobody expects ends one thing, is told with its trace, and leaves nothing under
way: whatever else waits goes on, and the one thing is tried again or answered."""

from collections.abc import Callable
from typing import Any

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from simulation.world.network import SimulatedTransport
from storage_engine.broker import unexpected
from storage_engine.broker.cluster.producer_ids import ProducerIds
from storage_engine.broker.cluster.topic_lookup import TopicLookup
from storage_engine.broker.coordinators.state_load import LoadTroubles, StateLoad
from storage_engine.broker.handlers.transactions import transactions as handler
from storage_engine.broker.replicas.durable_acks import DurableAcks
from storage_engine.broker.replicas.purgatory import WaitList
from storage_engine.broker.transactions import coordinator_questions, marker_sender
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.core.transactions.transaction_events import CheckTimeouts
from storage_engine.core.transactions.transaction_state import TransactionState
from storage_engine.core.transactions.transactions import TransactionCoordinator
from storage_engine.protocol.messages import (
    add_partitions_to_txn,
    init_producer_id,
    write_txn_markers,
)
from storage_engine.tests.broker.broken import Broken, fail
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.transactions.test_transactions import settle

A = TopicPartition("a", 0)
STATE = TopicPartition(TRANSACTION_STATE_TOPIC, 0)


cluster = cluster_fixture(
    "a",
    transaction_state_log_num_partitions="1",
    transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
    auto_leader_rebalance_enable="false",
)


def producer(cluster: SimulatedCluster, name: str = "p") -> SimulatedProducer:
    made = SimulatedProducer(cluster, name)
    made.init()
    return made


def init_code(cluster: SimulatedCluster, coordinator: int) -> ErrorCode:
    request = init_producer_id.InitProducerIdRequest(
        transactional_id="p", transaction_timeout_ms=60_000
    )
    answer = cluster.answer(cluster.ask(coordinator, init_producer_id.API, 4, request))
    return ErrorCode.of(answer.error_code)


class Waits:
    """For two looks."""

    def __init__(self) -> None:
        self.looks = 0

    def try_complete(self) -> bool:
        self.looks += 1
        return self.looks == 2


class Fails:
    def try_complete(self) -> bool:
        return bool(fail())


def test_one_who_waits_and_fails_does_not_take_the_others_along(raised):
    waiters, before, behind = WaitList(), Waits(), Waits()
    for each in (before, Fails(), behind):
        waiters.add(each)
    waiters.wake()
    assert (before.looks, behind.looks, len(waiters)) == (1, 1, 2)
    waiters.wake()
    assert len(waiters) == 0
    assert raised.told == 1


@pytest.mark.parametrize("where", ["step", "restore", "event"])
def test_a_request_that_can_not_be_stepped_is_answered_and_the_coordinator_goes_on(
    cluster, where, raised, break_it
):
    first = producer(cluster)
    coordinator = first.coordinator()
    if where == "event":
        break_it(handler, "InitProducer")
    else:
        break_it(TransactionCoordinator, "step", when=lambda _, event: hasattr(event, "request"))
    if where == "restore":
        break_it(TransactionCoordinator, "restore")
    assert init_code(cluster, coordinator) is ErrorCode.UNKNOWN_SERVER_ERROR
    first.add(A)
    first.write(A, b"1")
    first.end(commits=True)
    settle(cluster, A)
    assert raised.told == (2 if where == "restore" else 1)


def test_a_tick_that_fails_is_not_the_last(cluster, raised, break_it):
    first = SimulatedProducer(cluster, "p", timeout_ms=5_000)
    first.init()
    first.add(A)
    first.write(A, b"1")
    break_it(TransactionCoordinator, "step", when=lambda _, event: isinstance(event, CheckTimeouts))
    cluster.loop.run_for(8_000)
    settle(cluster, A)
    assert raised.told == 1


def test_an_answer_that_fails_costs_nobody_else_anything(cluster, raised):
    first = producer(cluster)
    coordinators = cluster[first.coordinator()].parts.coordinators.transactions
    (runner,) = coordinators._runners.values()
    answers: list[ErrorCode] = []

    def ask(on_answer: Callable[[Any], None]) -> None:
        coordinators.request("p", lambda _: ErrorCode.CONCURRENT_TRANSACTIONS, on_answer)

    ask(fail)
    ask(lambda answer: answers.append(answer.error))
    assert answers == [ErrorCode.CONCURRENT_TRANSACTIONS]
    runner._pending.expect(1_000, fail)
    runner._pending.expect(1_001, lambda answer: answers.append(answer.error))
    runner.end()
    assert answers[1:] == [ErrorCode.NOT_COORDINATOR]
    assert raised.told == 2


@pytest.mark.parametrize("api", [write_txn_markers.API, add_partitions_to_txn.API])
@pytest.mark.parametrize("where", ["request", "answer"])
def test_what_can_not_be_sent_or_read_is_sent_again(cluster, api, where, raised, break_it):
    """Markers, and questions whether a transaction is open."""
    first = producer(cluster)
    coordinator = first.coordinator()
    if cluster.state(A).leader == coordinator:
        elsewhere = sorted({1, 2, 3} - {coordinator})
        cluster.wait_in_sync(A, 1, 2, 3)
        cluster.answer(cluster.reassign(A, [*elsewhere, coordinator]))
        cluster.loop.run_for(2_000)
        cluster.answer(cluster.elect_preferred(A))
        cluster.loop.run_for(1_000)
    assert cluster.state(A).leader != coordinator
    if where == "request":
        break_it(
            SimulatedTransport,
            "request",
            when=lambda _self, _to, _by, spec, *_, **_options: spec is api,
        )
    elif api is write_txn_markers.API:
        break_it(marker_sender, "codes_of_response")
    else:
        break_it(coordinator_questions, "_outcomes")
    for payload in (b"1", b"2"):
        # The second waits for the end of the first.
        first.add(A)
        first.write(A, payload)
        first.end(commits=True)
    settle(cluster, A)
    assert raised.told == 1


def test_a_look_up_of_a_topic_that_fails_is_not_the_last_of_it(cluster, raised, break_it):
    """A transaction with records in a deleted topic would never end."""
    assert cluster.create_topic("b").error_code == 0
    first = producer(cluster)
    deleted = TopicPartition("b", 0)
    first.add(A, deleted)
    first.write(A, b"1")
    cluster.delete_topic("b")
    cluster.loop.run_until(lambda: all("b" not in each.metadata for each in cluster.brokers))
    break_it(TopicLookup, "_is_ours")
    first.end(commits=True)
    cluster.loop.run_for(2_000)
    coordinators = cluster[first.coordinator()].parts.coordinators.transactions
    state = coordinators.coordinator_of("p").producers.get("p").state
    assert state is TransactionState.COMPLETE_COMMIT
    assert raised.told == 1


def test_who_fails_with_a_producer_id_does_not_keep_the_next_from_getting_one(cluster, raised):
    ids = ProducerIds(cluster[1].session, broker_id=1)
    given: list[int] = []

    ids.allocate(fail)
    ids.allocate(lambda number, _: given.append(number))
    cluster.loop.run_for(1_000)
    ids.allocate(lambda number, _: given.append(number))
    assert len(given) == 2
    assert raised.told == 1


def test_a_flush_whose_listener_fails_is_not_the_last_of_its_log_dir(cluster, raised):
    cluster.produced(A, b"1")
    broker = cluster[cluster.state(A).leader]
    partition = broker.replicas.get(A)
    acks: DurableAcks = broker.replicas.durable_acks
    settled: list[str] = []

    acks.flush(partition, fail)
    acks.flush(partition, lambda: settled.append("with it"))
    cluster.loop.run_for(1_000)
    cluster.produced(A, b"2")
    acks.flush(partition, lambda: settled.append("after it"))
    cluster.loop.run_for(1_000)
    assert settled == ["with it", "after it"]
    assert raised.told == 1


def test_a_turn_that_fails_for_one_partition_ends_for_the_others(cluster, raised, break_it):
    assert cluster.create_topic("b").error_code == 0
    second = TopicPartition("b", 0)
    leader = cluster.state(A).leader
    replicas = cluster[leader].replicas
    cluster.loop.run_for(1_000)
    first, other = replicas.get(A), replicas.get(second)
    break_it(type(first), "_end_turn", when=lambda partition: partition is first)
    looked: list[TopicPartition] = []

    class Looks:
        def try_complete(self) -> bool:
            looked.append(second)
            return True

    other.data_waiters.add(Looks())
    first.mark()
    other.mark()
    cluster.loop.run_for(10)
    assert looked == [second]
    assert raised.told == 1


def test_tests_and_simulations_end_with_what_a_broker_would_only_report(monkeypatch):
    monkeypatch.setattr(unexpected, "is_fatal", True)
    waiters = WaitList()
    waiters.add(Fails())
    with pytest.raises(Broken):
        waiters.wake()


def coordinate_elsewhere(cluster: SimulatedCluster) -> None:
    """The coordinator dies; the next one has read its log a few seconds later."""
    first = producer(cluster)
    coordinator = first.coordinator()
    cluster[coordinator].kill(session_ends_at_once=True)
    cluster.loop.run_until(lambda: cluster.state(STATE).leader not in (-1, coordinator))
    cluster.loop.run_for(10_000)
    assert init_code(cluster, cluster.state(STATE).leader) is ErrorCode.NONE


@pytest.mark.parametrize("step", ["_begin", "_next", "_warm", "_replayed"])
def test_a_load_that_fails_anywhere_is_done_again(cluster, step, raised, break_it):
    producer(cluster)
    break_it(StateLoad, step)
    coordinate_elsewhere(cluster)
    assert raised.told == 1


def test_a_load_is_done_again_also_when_nobody_can_take_its_failure(cluster, raised, break_it):
    producer(cluster)
    break_it(StateLoad, "_warm")
    break_it(LoadTroubles, "failed")
    coordinate_elsewhere(cluster)
    assert raised.told == 1
