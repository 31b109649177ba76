"""Transactions of producers in a simulated cluster, from FindCoordinator to the markers (KIP-98,
KIP-360, KIP-890)."""

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.core.transactions.transaction_state import state_partition
from storage_engine.protocol.messages import end_txn
from storage_engine.tests.broker.support import cluster_fixture, refused

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
STATE_PARTITIONS = 3


cluster = cluster_fixture(
    "a",
    "b",
    transaction_state_log_num_partitions=str(STATE_PARTITIONS),
    transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
)


def producer(cluster, name: str = "p", **how) -> SimulatedProducer:
    made = SimulatedProducer(cluster, name, **how)
    made.init()
    return made


def state_of(name: str) -> TopicPartition:
    return TopicPartition(TRANSACTION_STATE_TOPIC, state_partition(name, STATE_PARTITIONS))


def log_of(cluster, tp):
    broker = cluster[cluster.state(tp).leader]
    return broker.replicas.get(tp)


def settle(cluster, *partitions: TopicPartition) -> None:
    """Until everything is decided everywhere."""
    cluster.loop.run_until(
        lambda: all(
            cluster.state(tp).leader != -1
            and (led := log_of(cluster, tp)) is not None
            and led.leader is not None
            and led.last_stable_offset == led.log.log_end_offset
            for tp in partitions
        ),
        limit_ms=120_000,
    )


def aborted(cluster, tp) -> list[tuple[int, int]]:
    """(producer id, first offset) of all aborted transactions."""
    led = log_of(cluster, tp)
    found = led.log.reads.aborted_transactions(0, led.log.log_end_offset)
    return [(each.producer_id, each.first_offset) for each in found]


def send_no_markers(broker) -> None:
    """From the coordinators that it has now."""
    for runner in broker.parts.coordinators.transactions._runners.values():
        runner._carrier.sender.send = lambda order: None


def test_a_commit_is_stable_in_all_partitions_and_an_abort_is_told(cluster):
    first = producer(cluster)
    first.add(A, B)
    assert (first.write(A, b"1"), first.write(B, b"1")) == (0, 0)
    assert log_of(cluster, A).last_stable_offset == 0
    first.end(commits=True)
    settle(cluster, A, B)
    assert log_of(cluster, A).log.log_end_offset == 2
    first.add(A)
    assert first.write(A, b"2") == 2
    first.end(commits=False)
    settle(cluster, A, B)
    assert aborted(cluster, A) == [(first.producer_id, 2)]
    assert aborted(cluster, B) == []


def test_what_is_not_enlisted_is_refused_and_changes_nothing(cluster):
    first = producer(cluster)
    with refused(ErrorCode.INVALID_TXN_STATE):
        first.write(A, b"too early")
    first.add(B)
    with refused(ErrorCode.INVALID_TXN_STATE):
        first.write(A, b"another partition")
    first.write(B, b"enlisted")
    first.end(commits=True)
    with refused(ErrorCode.INVALID_TXN_STATE):
        first.write(B, b"too late")
    settle(cluster, A, B)
    assert log_of(cluster, A).log.log_end_offset == 0


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(cluster):
    first = producer(cluster)
    first.add(A)
    first.write(A, b"lost")
    second = producer(cluster)
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 2)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        first.write(A, b"late")
    for late in (lambda: first.add(B), lambda: first.end(commits=True)):
        with refused(ErrorCode.PRODUCER_FENCED):
            late()
    second.add(A)
    second.write(A, b"kept")
    second.end(commits=True)
    settle(cluster, A)
    assert aborted(cluster, A) == [(first.producer_id, 0)]


def test_batches_in_flight_keep_their_order_while_the_first_is_verified(cluster):
    first = producer(cluster)
    first.add(A)
    sent = [first.send(A, b"%d" % number, number) for number in range(5)]
    answers = [cluster.answer(each).partitions[0] for each in sent]
    assert [(each.error_code, each.base_offset) for each in answers] == [
        (0, number) for number in range(5)
    ]
    first.end(commits=True)
    settle(cluster, A)


def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced(cluster):
    first = producer(cluster, timeout_ms=2_000)
    first.add(A)
    first.write(A, b"slow")
    cluster.loop.run_for(1_000)
    assert log_of(cluster, A).last_stable_offset == 0
    settle(cluster, A)
    assert aborted(cluster, A) == [(first.producer_id, 0)]
    with refused(ErrorCode.PRODUCER_FENCED):
        first.end(commits=True)


def test_a_timeout_beyond_what_the_broker_allows_is_refused(cluster):
    with refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT):
        producer(cluster, timeout_ms=900_001)


def test_nothing_is_answered_with_too_few_replicas_of_the_state_log(cluster):
    first = producer(cluster)
    first.add(A)
    first.write(A, b"1")
    coordinator = first.coordinator()
    others = [b for b in cluster.brokers if b.id != coordinator]
    for other in others:
        cluster.network.cut(coordinator, other.id)
    answers = cluster.ask(coordinator, end_txn.API, 4, first.end_request(commits=True))
    cluster.loop.run_for(3_000)
    assert not answers
    cluster.network.heal()
    first.end(commits=True)
    settle(cluster, A)
    assert aborted(cluster, A) == []


def test_an_id_that_nobody_uses_is_forgotten(tmp_path):
    cluster = SimulatedCluster(
        tmp_path,
        transactional_id_expiration_ms="5000",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
        transaction_state_log_num_partitions="1",
    )
    first = producer(cluster)
    coordinators = cluster[first.coordinator()].parts.coordinators.transactions
    cluster.loop.run_for(4_000)
    assert coordinators.coordinator_of("p").producers.get("p") is not None
    cluster.loop.run_for(2_000)
    assert coordinators.coordinator_of("p").producers.get("p") is None
    again = producer(cluster)
    assert again.producer_id != first.producer_id and again.epoch == 0
    cluster.close()


def test_an_epoch_for_each_transaction_refuses_the_delayed_end_of_the_last_one(cluster):
    """EndTxn 5 (KIP-890)."""
    first = producer(cluster)
    first.add(A)
    first.write(A, b"1")
    delayed = first.end_request(commits=True)
    answer = first.ask_coordinator(end_txn.API, 5, delayed, lambda a: [a.error_code])
    assert (answer.producer_id, answer.producer_epoch) == (first.producer_id, first.epoch + 1)
    first.epoch, first.sequences = answer.producer_epoch, {}
    first.add(A)
    first.write(A, b"2")
    with refused(ErrorCode.PRODUCER_FENCED):
        first.ask_coordinator(end_txn.API, 5, delayed, lambda a: [a.error_code])
    last = first.end_request(commits=False)
    first.ask_coordinator(end_txn.API, 5, last, lambda a: [a.error_code])
    settle(cluster, A)
    assert aborted(cluster, A) == [(first.producer_id, 2)]
