"""Producers that enlist nothing, in a simulated cluster: the leader of what they write to does it
for them, and each transaction has an epoch of its own (KIP-890, second part)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from storage_engine.broker.transactions import verifier
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import TransactionRecord, TransactionState
from storage_engine.protocol.apis import (
    add_partitions_to_txn,
    api_versions,
    find_coordinator,
    txn_offset_commit,
)
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.simulation.clients.transactional_client import SimulatedProducer
from storage_engine.simulation.world.cluster import SimulatedCluster
from storage_engine.simulation.world.requests import ANSWER_MS, make_batch
from storage_engine.tests.broker.transactions.test_transactions import (
    aborted,
    log_of,
    send_no_markers,
    settle,
)

A, B, C = (TopicPartition("t", number) for number in range(3))
GROUP = "group"
OFFSETS = TopicPartition("__consumer_offsets", 0)
STATE = TopicPartition("__transaction_state", 0)


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    """The three partitions have three leaders."""
    made = SimulatedCluster(
        tmp_path,
        transaction_state_log_num_partitions="1",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
        offsets_topic_num_partitions="1",
    )
    assert made.create_topic("t", partitions=3).error_code == 0
    yield made
    made.close()


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
    """What its coordinator knows."""
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
    """What the partition's leader hears of coordinators waits until the result is called."""
    verifier = cluster[cluster.state(tp).leader].parts.coordinators.verifier
    settle_now = verifier._settle
    held: list[tuple[Any, ...]] = []
    verifier._settle = lambda *answer: held.append(answer)

    def release() -> None:
        verifier._settle = settle_now
        for answer in held:
            settle_now(*answer)

    return release


def test_every_broker_tells_the_feature_and_its_level(cluster):
    request = api_versions.ApiVersionsRequest()
    for broker in cluster.brokers:
        answer = cluster.answer(cluster.ask(broker.id, api_versions.API, 3, request))
        level = [("transaction.version", 2, 2)]
        assert (answer.supported_features, answer.finalized_features) == (level, level)
        assert answer.finalized_features_epoch == 0
        assert {0: (0, 12), 28: (0, 5), 26: (0, 5)}.items() <= answer.ranges().items()


def test_transactions_are_whole_and_each_has_its_epoch(cluster):
    first = producer(cluster)
    for number in range(4):
        for tp in (A, B, C):
            assert first.write(tp, b"%d" % number) == 2 * number
        assert record_of(cluster, first).partitions == {A, B, C}
        assert first.epoch == number
        first.end(commits=number % 2 == 0)
    settle(cluster, A, B, C)
    assert aborted_at(cluster, A) == aborted_at(cluster, B) == aborted_at(cluster, C) == [2, 6]
    assert [end_of(cluster, tp) for tp in (A, B, C)] == [8, 8, 8]


def test_what_is_sent_to_several_leaders_at_once_is_enlisted_at_the_first_try(cluster):
    first = producer(cluster)
    for _ in range(3):
        sent = [first.send(tp, b"first", 0) for tp in (A, B, C)]
        assert [code_of(cluster, each) for each in sent] == [ErrorCode.NONE] * 3
        # The next one begins at once, while the markers of this one are being written.
        first.end(commits=True)


def test_batches_in_flight_keep_their_order_while_the_last_transaction_is_finished(cluster):
    first = producer(cluster)
    for begin in (0, 6):
        sent = [first.send(A, b"%d" % number, number) for number in range(5)]
        answers = [cluster.answer(each).partitions[0] for each in sent]
        assert [(each.error_code, each.base_offset) for each in answers] == [
            (0, begin + number) for number in range(5)
        ]
        first.end(commits=True)


@pytest.mark.parametrize("commits", [True, False])
def test_what_comes_after_the_end_is_refused_by_its_epoch(cluster, commits):
    """A batch that was delayed on the way, and one that is sent again."""
    first = producer(cluster)
    first.write(A, b"of the first")
    old = first.epoch
    first.end(commits=commits)
    new, first.epoch = first.epoch, old
    for when in ("between transactions", "in the next one"):
        for tp, sequence in ((A, 0), (A, 1), (B, 0)):
            code = code_of(cluster, first.send(tp, b"late", sequence))
            assert code is ErrorCode.INVALID_PRODUCER_EPOCH, (when, tp, sequence)
        first.epoch = new
        first.write(C, b"of the second")
        assert record_of(cluster, first).partitions == {C}, "the late ones enlisted nothing"
        first.epoch = old
    first.epoch = new
    first.end(commits=True)
    settle(cluster, A, B, C)
    assert [end_of(cluster, tp) for tp in (A, B, C)] == [2, 0, 3]


def test_a_client_that_ends_as_older_ones_do_can_not_be_overtaken_by_its_batches_either(cluster):
    first = producer(cluster)
    first.write(A, b"1")
    first.end_version = 4
    first.end(commits=True)
    settle(cluster, A)
    assert code_of(cluster, first.send(A, b"late", 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert record_of(cluster, first).state is TransactionState.COMPLETE_COMMIT
    again = producer(cluster)
    again.write(A, b"2")
    again.end(commits=True)
    settle(cluster, A)
    assert aborted_at(cluster, A) == []


@pytest.mark.parametrize("commits", [True, False])
def test_a_batch_whose_enlisting_is_answered_after_the_marker_does_not_land(cluster, commits):
    first = producer(cluster)
    tp = away_from_coordinator(cluster, first)
    release = hold_answers(cluster, tp)
    answers = first.send(tp, b"late", 0)
    cluster.loop.run_until(lambda: record_of(cluster, first).partitions == {tp})
    first.end(commits=commits)
    cluster.loop.run_until(lambda: record_of(cluster, first).state.is_complete)
    assert end_of(cluster, tp) == 1
    release()
    assert code_of(cluster, answers) is ErrorCode.INVALID_PRODUCER_EPOCH
    first.write(tp, b"next")
    first.end(commits=True)
    settle(cluster, tp)
    assert end_of(cluster, tp) == 3


def test_a_leader_that_is_replaced_between_enlisting_and_append_appends_nothing(cluster):
    first = producer(cluster)
    tp = away_from_coordinator(cluster, first)
    old = cluster.state(tp).leader
    coordinator = first.coordinator()
    release = hold_answers(cluster, tp)
    answers = first.send(tp, b"1", 0)
    cluster.loop.run_until(lambda: record_of(cluster, first).partitions == {tp})
    cluster.answer(cluster.reassign(tp, [coordinator, old]))
    cluster.loop.run_until(lambda: cluster.state(tp).leader == coordinator, limit_ms=60_000)
    cluster.loop.run_until(lambda: log_of(cluster, tp).leader is not None)
    release()
    assert code_of(cluster, answers).retriable
    assert end_of(cluster, tp) == 0
    assert first.write(tp, b"1") == 0
    first.end(commits=True)
    settle(cluster, tp)
    assert end_of(cluster, tp) == 2


def test_a_leader_that_is_killed_between_enlisting_and_append_is_followed_by_one_that_asks(cluster):
    first = producer(cluster)
    tp = away_from_coordinator(cluster, first)
    hold_answers(cluster, tp)
    first.send(tp, b"1", 0)
    cluster.loop.run_until(lambda: record_of(cluster, first).partitions == {tp})
    cluster[cluster.state(tp).leader].kill()
    assert first.write(tp, b"1") == 0
    first.end(commits=True)
    settle(cluster, tp)
    assert (end_of(cluster, tp), aborted_at(cluster, tp)) == (2, [])


def test_without_a_coordinator_the_client_is_told_to_send_again(cluster):
    first = producer(cluster)
    tp = away_from_coordinator(cluster, first)
    coordinator = first.coordinator()
    cluster[coordinator].kill(session_ends_at_once=False)
    assert code_of(cluster, first.send(tp, b"1", 0)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert end_of(cluster, tp) == 0
    assert first.write(tp, b"1") == 0
    first.end(commits=True)
    settle(cluster, tp)
    assert (end_of(cluster, tp), aborted_at(cluster, tp)) == (2, [])


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_goes_on_with_the_next_coordinator(cluster, commits):
    first = producer(cluster)
    tp = away_from_coordinator(cluster, first)
    first.write(tp, b"1")
    cluster[first.coordinator()].kill()
    for each in (A, B, C, tp):
        first.write(each, b"2")
    assert record_of(cluster, first).partitions == {A, B, C}
    first.end(commits=commits)
    settle(cluster, A, B, C)
    for each in (A, B, C):
        assert aborted_at(cluster, each) == ([] if commits else [0])


def test_nothing_is_appended_by_the_word_of_a_record_that_is_not_replicated(cluster):
    """The next coordinator would know of no such partition."""
    first = producer(cluster)
    coordinator = first.coordinator()
    tp = next(tp for tp in (A, B, C) if cluster.state(tp).leader == coordinator)
    for other in cluster.brokers:
        if other.id != coordinator:
            cluster.network.cut(coordinator, other.id)
    answers = first.send(tp, b"1", 0)
    cluster.loop.run_for(500)
    broker = cluster[coordinator]
    known = broker.parts.coordinators.transactions.coordinator_of("p").producers.get("p")
    assert known.partitions == {tp}, "its record is in the log of this broker alone"
    assert not answers
    assert broker.replicas.get(tp).log.log_end_offset == 0
    broker.kill()
    cluster.network.heal()
    assert first.write(tp, b"1") == 0
    first.end(commits=True)
    settle(cluster, tp)
    assert (end_of(cluster, tp), aborted_at(cluster, tp)) == (2, [])


def test_while_markers_can_not_be_written_the_next_transaction_waits(cluster):
    first = producer(cluster)
    tp = away_from_coordinator(cluster, first)
    first.write(tp, b"1")
    send_no_markers(cluster[first.coordinator()])
    first.end(commits=True)
    assert code_of(cluster, first.send(tp, b"2", 0)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert end_of(cluster, tp) == 1
    cluster[first.coordinator()].kill()
    assert first.write(tp, b"2") == 2
    first.end(commits=True)
    settle(cluster, tp)
    assert (end_of(cluster, tp), aborted_at(cluster, tp)) == (4, [])


def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced(cluster):
    first = producer(cluster, timeout_ms=2_000)
    first.write(A, b"slow")
    cluster.loop.run_for(3_000)
    settle(cluster, A)
    assert aborted_at(cluster, A) == [0]
    for tp in (A, B):
        assert code_of(cluster, first.send(tp, b"late", 1)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_second_producer_fences_the_first(cluster):
    first = producer(cluster)
    first.write(A, b"lost")
    second = producer(cluster)
    with pytest.raises(KafkaError) as failure:
        first.write(B, b"late")
    assert failure.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    second.write(A, b"kept")
    second.end(commits=True)
    settle(cluster, A)
    assert aborted_at(cluster, A) == [0]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (9, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_older_versions_enlist_nothing(cluster, version, code):
    first = producer(cluster)
    first.produce_version = version
    assert code_of(cluster, first.send(A, b"not enlisted", 0)) is code
    assert record_of(cluster, first).partitions == frozenset()


def test_topics_of_coordinators_can_not_be_enlisted_by_writing_to_them(cluster):
    first = producer(cluster)
    commit_offsets(cluster, first)
    first.end(commits=False)
    for tp in (STATE, OFFSETS):
        assert code_of(cluster, first.send(tp, b"x", 0)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    transaction = add_partitions_to_txn.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        transactions=[
            transaction(
                transactional_id="p",
                producer_id=first.producer_id,
                producer_epoch=first.epoch,
                verify_only=False,
                topics=[
                    transaction.AddPartitionsToTxnTopic(name=name, partitions=[0])
                    for name in ("__transaction_state", "no such", "t")
                ],
            )
        ]
    )
    answer = cluster.answer(cluster.ask(first.coordinator(), add_partitions_to_txn.API, 4, request))
    (result,) = answer.results_by_transaction
    codes = [row.results_by_partition[0].partition_error_code for row in result.topic_results]
    assert codes == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ]
    assert record_of(cluster, first).partitions == frozenset()


def test_a_batch_outside_of_the_transaction_enlists_nothing(cluster):
    first = producer(cluster)
    empty = ProduceRequest("p", -1, ANSWER_MS, [])
    assert cluster.answer(cluster.ask(1, PRODUCE, 12, empty)).partitions == []
    batch = make_batch(producer=(first.producer_id, first.epoch, 0))
    outside = ProduceRequest("p", -1, ANSWER_MS, [ProducePartition(*A, batch)])
    leader = cluster.state(A).leader
    assert code_of(cluster, cluster.ask(leader, PRODUCE, 12, outside)) is ErrorCode.NONE
    assert record_of(cluster, first).partitions == frozenset()


# --- offsets of groups ---


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
    assert leader.parts.coordinators.verifier._waiting_bytes == 0
    for broker in cluster.brokers:
        if broker is not leader:
            broker.resume()
    cluster.loop.run_for(10_000)
    assert code_of(cluster, send()) is ErrorCode.NONE


def test_batches_that_wait_for_a_coordinator_take_so_much_memory_at_most(cluster, monkeypatch):
    monkeypatch.setattr(verifier, "WAITING_MAX_BYTES", 5_000)
    leader, send = waiting_for_the_own_coordinator(cluster)
    asked = [send() for _ in range(4)]
    cluster.loop.run_for(1_000)
    assert [bool(each) for each in asked] == [False, False, True, True]
    assert code_of(cluster, asked[3]) is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.loop.run_for(5_000)
    assert all(asked) and leader.parts.coordinators.verifier._waiting_bytes == 0
