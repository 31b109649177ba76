"""Transactions of Kafka's producers in the coordinator: ends, repeats, failover, time. Source:
KIP-98, KIP-890."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions.transaction_events import MarkersWritten
from storage_engine.core.transactions.transaction_state import (
    TransactionalIdKey,
    TransactionState,
)
from storage_engine.core.transactions.transactions import EXPIRATION_MS
from storage_engine.tests.core.transactions.coordinator_bench import OUT0, OUT1
from storage_engine.tests.core.transactions.producer_bench import (
    TIMEOUT_MS,
    TX,
    ProducerBench,
    started,
)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("bumps", [True, False])
def test_a_transaction_ends_in_all_its_partitions(commits, bumps):
    bench, producer = started()
    assert bench.add(producer, OUT0).error is ErrorCode.NONE
    assert bench.add(producer, OUT1).error is ErrorCode.NONE
    ended = bench.end(producer, commits=commits, bumps=bumps)
    assert ended.error is ErrorCode.NONE
    assert (ended.producer_id, ended.producer_epoch) == ((producer[0], 1) if bumps else (-1, -1))
    bench.settle()
    assert bench.written == {(producer[0], OUT0): {commits}, (producer[0], OUT1): {commits}}
    state = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
    assert (bench.record().state, bench.record().partitions) == (state, frozenset())


def test_nothing_is_answered_or_marked_before_it_is_replicated():
    bench = ProducerBench()
    assert bench.init(replicate=False) is None
    bench.replicate()
    producer = bench.answers[1].producer_id, 0
    assert bench.add(producer, OUT0, replicate=False) is None
    assert bench.add(producer, OUT0, replicate=False) is None
    assert bench.verify(producer, OUT0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(producer, replicate=False) is None
    assert not bench.markers
    bench.fail_over()
    bench.replicate()
    assert bench.record().state is TransactionState.ONGOING


def test_partitions_that_several_leaders_enlist_at_once_are_all_there_or_come_to_nothing():
    bench, producer = started()
    assert bench.add(producer, OUT0, by_leader=True, replicate=False) is None
    assert bench.add(producer, OUT1, by_leader=True, replicate=False) is None
    assert bench.add(producer, OUT0, by_leader=True, replicate=False) is None
    last = len(bench.log)
    bench.replicate(last - 1)
    assert [bench.answers.get(number) is None for number in (2, 3, 4)] == [False, True, True]
    bench.fail_over()
    bench.replicate()
    assert bench.record().partitions == {OUT0}
    assert bench.add(producer, OUT1, by_leader=True).error is ErrorCode.NONE
    assert bench.record().partitions == {OUT0, OUT1}


@pytest.mark.parametrize("ends", ["by its client", "by time", "by another instance"])
def test_a_transaction_that_a_leader_enlisted_in_ends_under_the_next_epoch(ends):
    bench, producer = started()
    bench.add(producer, OUT0)
    bench.add(producer, OUT1, by_leader=True)
    match ends:
        case "by its client":
            assert bench.end(producer).error is ErrorCode.NONE
        case "by time":
            bench.pass_time(TIMEOUT_MS)
        case "by another instance":
            bench.init()
    bench.settle()
    assert bench.record().producer_epoch == producer[1] + 1
    for out in (OUT0, OUT1):
        assert bench.add(producer, out, by_leader=True).error is ErrorCode.PRODUCER_FENCED
    assert bench.record().partitions == frozenset()


def test_the_next_transaction_waits_until_the_last_is_complete():
    bench, producer = started()
    bench.add(producer, OUT0, OUT1)
    bench.end(producer)
    assert bench.add(producer, OUT0).error is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.write_markers((producer[0], OUT0))
    assert bench.add(producer, OUT0).error is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.write_markers((producer[0], OUT1))
    assert bench.add(producer, OUT0, replicate=False).error is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.replicate()
    assert bench.add(producer, OUT0).error is ErrorCode.NONE


def test_acknowledgements_of_another_epoch_end_nothing():
    bench, producer = started()
    bench.add(producer, OUT0)
    bench.end(producer, bumps=True)
    for epoch in (producer[1], producer[1] + 2):
        bench.step(
            MarkersWritten(
                producer_id=producer[0],
                producer_epoch=epoch,
                partitions=frozenset({OUT0}),
                now_ms=0,
            )
        )
    assert bench.record().state is TransactionState.PREPARE_COMMIT


@pytest.mark.parametrize("pause", [0, 1])
@pytest.mark.parametrize("commits", [True, False])
def test_a_failover_sends_the_markers_again(commits, pause):
    bench, producer = started()
    bench.add(producer, OUT0, OUT1)
    bench.end(producer, commits=commits)
    for key in sorted(bench.markers)[:pause]:
        bench.write_markers(key)
    bench.fail_over()
    assert not bench.markers, "what the next coordinator read may be lost again"
    bench.settle()
    assert bench.written == {(producer[0], OUT0): {commits}, (producer[0], OUT1): {commits}}


def test_a_decision_that_only_the_next_coordinator_has_may_be_lost_still():
    bench, producer = started()
    bench.add(producer, OUT0)
    bench.end(producer, replicate=False)
    bench.fail_over(keep=1)
    assert bench.record().state is TransactionState.PREPARE_COMMIT
    assert bench.end(producer, replicate=False).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not bench.markers
    bench.fail_over()
    bench.replicate()
    assert bench.record().state is TransactionState.ONGOING
    bench.end(producer, commits=False)
    bench.settle()
    assert bench.written == {(producer[0], OUT0): {False}}


def test_a_repeated_end_is_told_what_became_of_it():
    bench, producer = started()
    assert bench.end(producer).error is ErrorCode.INVALID_TXN_STATE
    bench.add(producer, OUT0)
    bench.end(producer)
    assert bench.end(producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(producer, commits=False).error is ErrorCode.INVALID_TXN_STATE
    bench.settle()
    assert bench.end(producer).error is ErrorCode.NONE
    assert bench.end(producer, commits=False).error is ErrorCode.INVALID_TXN_STATE


def test_a_transaction_that_takes_too_long_is_aborted_under_the_next_epoch():
    bench, producer = started()
    bench.add(producer, OUT0)
    bench.pass_time(TIMEOUT_MS - 1)
    bench.add(producer, OUT1)
    assert bench.record().state is TransactionState.ONGOING
    bench.fail_over()
    bench.replicate()
    bench.pass_time(1)
    assert not bench.markers
    bench.settle()
    assert bench.written == {(producer[0], OUT0): {False}, (producer[0], OUT1): {False}}
    assert bench.end(producer).error is ErrorCode.PRODUCER_FENCED
    assert bench.record().producer_epoch == 1


def test_an_id_that_nobody_uses_is_forgotten_and_an_open_one_is_not():
    bench, producer = started()
    bench.pass_time(EXPIRATION_MS - 1)
    bench.add(producer, OUT0)
    bench.end(producer)
    bench.settle()
    bench.pass_time(EXPIRATION_MS - 1)
    assert bench.coordinator.producers.get(TX) is not None
    bench.pass_time(1)
    assert bench.coordinator.producers.get(TX) is None
    assert bench.log[-1] == (TransactionalIdKey(TX), None)
    assert bench.end(producer).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.started()[0] != producer[0]


def test_requests_that_make_no_sense_are_refused():
    bench, producer = started()
    for timeout_ms in (0, -1, 24 * 3600 * 1000):
        refused = bench.init(timeout_ms=timeout_ms)
        assert refused.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert bench.init((producer[0], -1)).error is ErrorCode.INVALID_REQUEST
    assert bench.init((producer[0] + 50, 0)).error is ErrorCode.PRODUCER_FENCED
    stranger = producer[0] + 50, 0
    assert bench.add(stranger, OUT0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.end(stranger).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.verify(producer, OUT0) is ErrorCode.INVALID_TXN_STATE
    bench.add(producer, OUT0)
    assert bench.verify(producer, OUT0, OUT1) is ErrorCode.INVALID_TXN_STATE
