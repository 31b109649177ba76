"""Transactions of producers in a simulated cluster, from FindCoordinator to the markers (KIP-98,
KIP-360, KIP-890)."""

import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.coordinators.state_load import StateLoad
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import CorruptRecordError, ErrorCode, KafkaError, LogFullError
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.core.transactions.transaction_state import TransactionState, state_partition
from storage_engine.protocol.messages import (
    describe_producers,
    describe_transactions,
    end_txn,
    list_transactions,
)
from storage_engine.tests.broker.support import cluster_fixture

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


def codes_of(failure) -> ErrorCode:
    return failure.value.code


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
    with pytest.raises(KafkaError) as failure:
        first.write(A, b"too early")
    assert codes_of(failure) is ErrorCode.INVALID_TXN_STATE
    first.add(B)
    with pytest.raises(KafkaError) as failure:
        first.write(A, b"another partition")
    assert codes_of(failure) is ErrorCode.INVALID_TXN_STATE
    first.write(B, b"enlisted")
    first.end(commits=True)
    with pytest.raises(KafkaError) as failure:
        first.write(B, b"too late")
    assert codes_of(failure) is ErrorCode.INVALID_TXN_STATE
    settle(cluster, A, B)
    assert log_of(cluster, A).log.log_end_offset == 0


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(cluster):
    first = producer(cluster)
    first.add(A)
    first.write(A, b"lost")
    second = producer(cluster)
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 2)
    with pytest.raises(KafkaError) as failure:
        first.write(A, b"late")
    assert codes_of(failure) is ErrorCode.INVALID_PRODUCER_EPOCH
    for late in (lambda: first.add(B), lambda: first.end(commits=True)):
        with pytest.raises(KafkaError) as failure:
            late()
        assert codes_of(failure) is ErrorCode.PRODUCER_FENCED
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
    with pytest.raises(KafkaError) as failure:
        first.end(commits=True)
    assert codes_of(failure) is ErrorCode.PRODUCER_FENCED


def test_a_timeout_beyond_what_the_broker_allows_is_refused(cluster):
    with pytest.raises(KafkaError) as failure:
        producer(cluster, timeout_ms=900_001)
    assert codes_of(failure) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_outlives_the_coordinator_that_could_send_no_marker(cluster, commits):
    first = producer(cluster)
    first.add(A, B)
    first.write(A, b"1")
    first.write(B, b"1")
    coordinator = first.coordinator()
    for tp in (A, B):
        # No leader is where the coordinator is, and it can't reach them.
        if cluster.state(tp).leader == coordinator:
            other = next(b.id for b in cluster.brokers if b.id != coordinator)
            cluster.answer(cluster.reassign(tp, [other, coordinator]))
            cluster.loop.run_until(lambda tp=tp: cluster.state(tp).leader not in (-1, coordinator))
    send_no_markers(cluster[coordinator])
    first.end(commits=commits)
    assert log_of(cluster, A).last_stable_offset == 0
    cluster[coordinator].kill()
    settle(cluster, A, B)
    expected = [] if commits else [(first.producer_id, 0)]
    assert aborted(cluster, A) == aborted(cluster, B) == expected
    second = producer(cluster)
    assert second.producer_id == first.producer_id and second.epoch > first.epoch


def test_an_open_transaction_goes_on_with_the_next_coordinator(cluster):
    first = producer(cluster)
    first.add(A)
    first.write(A, b"1")
    cluster[first.coordinator()].kill()
    first.add(B)
    first.write(B, b"2")
    first.write(A, b"3")
    first.end(commits=True)
    settle(cluster, A, B)
    assert aborted(cluster, A) == aborted(cluster, B) == []


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


def test_the_topic_of_the_state_log_is_the_brokers_own(cluster):
    first = producer(cluster)
    state = cluster.state(state_of("p"))
    made = cluster[state.leader].replicas.get(state_of("p"))
    assert made.config.log.compacts and made.config.min_insync_replicas == 2
    answer = cluster.answer(cluster.produce(state.leader, state_of("p"), b"forged"))
    code = ErrorCode.of(answer.partitions[0].error_code)
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    deleted = cluster.answer(cluster.delete_topic(TRANSACTION_STATE_TOPIC)).responses[0]
    assert ErrorCode.of(deleted.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
    created = cluster.create_topic(TRANSACTION_STATE_TOPIC)
    assert ErrorCode.of(created.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaError) as failure:
        first.add(state_of("p"))
    assert codes_of(failure) is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_marker_that_comes_late_does_not_end_the_next_transaction(cluster):
    sent = []
    for broker in cluster.brokers:
        writes = broker.parts.coordinators.marker_writes
        write = writes.write

        def noting(targets, on_written, write=write, broker=broker):
            sent.append((broker, [*targets]))
            write(targets, on_written)

        writes.write = noting
    first = producer(cluster)
    first.end_version = 5
    first.add(A)
    first.write(A, b"1")
    first.end(commits=True)
    settle(cluster, A)
    leader, targets = next(
        (broker, [each for each in targets if each.partition == A])
        for broker, targets in sent
        if any(each.partition == A for each in targets)
    )
    first.add(A)
    first.write(A, b"2")
    codes: list[ErrorCode] = []
    leader.parts.coordinators.marker_writes.write(targets, codes.extend)
    cluster.loop.run_until(lambda: codes)
    assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert log_of(cluster, A).last_stable_offset == 2, "the second transaction is open"
    first.end(commits=False)
    settle(cluster, A)
    assert aborted(cluster, A) == [(first.producer_id, 2)]


def test_leaders_tell_of_producers_and_of_what_they_have_open(cluster):
    first = producer(cluster)
    first.add(A)
    first.write(A, b"1")
    first.write(A, b"2")
    topic = describe_producers.DescribeProducersRequest.TopicRequest
    request = describe_producers.DescribeProducersRequest(
        topics=[topic(name="a", partition_indexes=[0, 9])]
    )

    def told(broker: int):
        answer = cluster.answer(cluster.ask(broker, describe_producers.API, 0, request))
        return answer.topics[0].partitions

    leader = cluster.state(A).leader
    known, unknown = told(leader)
    (active,) = known.active_producers
    assert (active.producer_id, active.producer_epoch) == (first.producer_id, first.epoch)
    assert (active.last_sequence, active.current_txn_start_offset) == (1, 0)
    assert (active.coordinator_epoch, active.last_timestamp >= 0) == (-1, True)
    assert ErrorCode.of(unknown.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    other = next(each for each in (1, 2, 3) if each != leader)
    cluster.loop.run_for(1_000)
    (copied,) = told(other)[0].active_producers
    assert (copied.producer_id, copied.last_sequence) == (first.producer_id, 1), "of a follower"
    first.end(commits=False)
    settle(cluster, A)
    (active,) = told(leader)[0].active_producers
    assert active.current_txn_start_offset == -1
    assert active.coordinator_epoch >= 0


def test_transactions_are_listed_and_described_by_their_coordinator(cluster):
    first = producer(cluster)
    first.add(A, B)
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=["p", "q"])
    coordinator = first.coordinator()
    rows = cluster.answer(
        cluster.ask(coordinator, describe_transactions.API, 0, request)
    ).transaction_states
    assert (rows[0].transaction_state, rows[0].producer_id) == ("Ongoing", first.producer_id)
    assert [(topic.topic, topic.partitions) for topic in rows[0].topics] == [("a", [0]), ("b", [0])]
    assert rows[1].error_code in (
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.NOT_COORDINATOR,
    )

    def listed(**filters) -> list[str]:
        every = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        wanted = list_transactions.ListTransactionsRequest(**{**every, **filters})
        answer = cluster.answer(cluster.ask(coordinator, list_transactions.API, 1, wanted))
        return [each.transactional_id for each in answer.transaction_states]

    assert listed() == listed(state_filters=["Ongoing"]) == ["p"]
    assert listed(state_filters=["Empty"]) == listed(duration_filter=60_000) == []
    assert listed(producer_id_filters=[first.producer_id + 1]) == []


def test_markers_for_a_deleted_topic_are_not_waited_for(cluster):
    first = producer(cluster)
    first.add(A, B)
    first.write(A, b"1")
    cluster.answer(cluster.delete_topic("b"))
    first.end(commits=True)
    settle(cluster, A)
    first.add(A)
    coordinator = cluster[first.coordinator()].parts.coordinators.transactions.coordinator_of("p")
    assert coordinator.producers.get("p").state is TransactionState.ONGOING


def test_a_batch_that_is_verified_too_late_does_not_land_behind_its_marker(cluster):
    """Else it would open a transaction that nobody ends."""
    first = next(
        each
        for each in (producer(cluster, f"p{number}") for number in range(50))
        if each.coordinator() != cluster.state(A).leader
    )
    first.add(A)
    leader = cluster[cluster.state(A).leader]
    verifier = leader.parts.coordinators.transactional_appends._verifier
    settle_now = verifier._settle
    verifier._settle = lambda *answer: leader.loop.call_later(2_000, lambda: settle_now(*answer))
    answers = first.send(A, b"late", 0)
    cluster.loop.run_for(100)
    first.end(commits=False)
    settle(cluster, A)
    cluster.loop.run_until(lambda: log_of(cluster, A).log.log_end_offset == 1, limit_ms=1_500)
    assert not answers
    code = ErrorCode.of(cluster.answer(answers).partitions[0].error_code)
    assert code is ErrorCode.NOT_ENOUGH_REPLICAS
    verifier._settle = settle_now
    with pytest.raises(KafkaError) as failure:
        first.write(A, b"late")
    assert codes_of(failure) is ErrorCode.INVALID_TXN_STATE
    settle(cluster, A)
    assert log_of(cluster, A).log.log_end_offset == 1


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


def test_a_coordinator_whose_record_is_refused_starts_anew_from_the_log(cluster, monkeypatch):
    first = producer(cluster)
    first.add(A)
    first.write(A, b"1")
    broker = cluster[first.coordinator()]
    refusals = []

    def refuse(partition, leader_epoch, records, **_):
        refusals.append(partition)
        raise LogFullError("no room")

    append_state = HostedPartition.append_state
    monkeypatch.setattr(HostedPartition, "append_state", refuse)
    answers = cluster.ask(broker.id, end_txn.API, 4, first.end_request(commits=True))
    code = ErrorCode.of(cluster.answer(answers).error_code)
    assert refusals and code is ErrorCode.NOT_COORDINATOR
    monkeypatch.setattr(HostedPartition, "append_state", append_state)
    assert log_of(cluster, A).last_stable_offset == 0
    first.end(commits=True)
    settle(cluster, A)
    assert aborted(cluster, A) == []


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
    with pytest.raises(KafkaError) as failure:
        first.ask_coordinator(end_txn.API, 5, delayed, lambda a: [a.error_code])
    assert codes_of(failure) is ErrorCode.PRODUCER_FENCED
    last = first.end_request(commits=False)
    first.ask_coordinator(end_txn.API, 5, last, lambda a: [a.error_code])
    settle(cluster, A)
    assert aborted(cluster, A) == [(first.producer_id, 2)]


def test_a_state_log_that_can_not_be_read_is_read_again(cluster, monkeypatch):
    first = producer(cluster)
    first.add(A)
    first.write(A, b"1")
    failures: list[dict] = []
    replay = StateLoad._replay

    def damaged(load, *piece):
        if len(failures) < 2:
            failures.append(load._content)
            raise CorruptRecordError("damaged")
        return replay(load, *piece)

    monkeypatch.setattr(StateLoad, "_replay", damaged)
    cluster[first.coordinator()].kill()
    first.end(commits=True)
    assert len(failures) == 2
    settle(cluster, A)
    assert aborted(cluster, A) == []
