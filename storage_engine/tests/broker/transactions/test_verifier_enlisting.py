"""Producers that enlist nothing, in a simulated cluster: the leader of what they write to does it
for them, and each transaction has an epoch of its own (KIP-890, second part)."""

import pytest

from simulation.world.requests import ANSWER_MS, make_batch
from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions.transaction_state import TransactionState
from storage_engine.protocol.apis import api_versions
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.messages import add_partitions_to_txn
from storage_engine.tests.broker.support import refused
from storage_engine.tests.broker.transactions.enlisting_support import (
    OFFSETS,
    STATE,
    A,
    B,
    C,
    aborted_at,
    away_from_coordinator,
    cluster,
    code_of,
    commit_offsets,
    end_of,
    hold_answers,
    producer,
    record_of,
)
from storage_engine.tests.broker.transactions.test_transactions import (
    log_of,
    send_no_markers,
    settle,
)

__all__ = ["cluster"]


def test_every_broker_tells_the_feature_and_its_level(cluster):
    request = api_versions.ApiVersionsRequest()
    for broker in cluster.brokers:
        answer = cluster.answer(cluster.ask(broker.id, api_versions.API, 3, request))
        for features in (answer.supported_features, answer.finalized_features):
            levels = [(each.name, each.min_version, each.max_version) for each in features]
            assert ("transaction.version", 2, 2) in levels
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
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        first.write(B, b"late")
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
                    add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=[0])
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
