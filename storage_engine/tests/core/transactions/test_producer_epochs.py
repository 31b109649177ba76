"""Epochs of producers with a transactional id: who is fenced, what is late, what follows the last.
Source: KIP-98, KIP-360, KIP-890."""

from dataclasses import replace

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.transactions.producer_epochs import LAST_CLIENT_EPOCH
from storage_engine.core.transactions.transaction_state import (
    TransactionRecord,
    TransactionState,
)
from storage_engine.tests.core.transactions.coordinator_bench import OUT0
from storage_engine.tests.core.transactions.producer_bench import (
    TIMEOUT_MS,
    Producer,
    ProducerBench,
    started,
)


def test_a_new_instance_fences_the_old_one_and_aborts_its_transaction():
    bench, old = started()
    bench.add(old, OUT0)
    assert bench.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(old).error is ErrorCode.PRODUCER_FENCED
    new = bench.started()
    assert bench.written == {(old[0], OUT0): {False}}
    assert new == (old[0], 2), "one epoch for the fence, one for the new instance"
    assert bench.add(old, OUT0).error is ErrorCode.PRODUCER_FENCED
    assert bench.init(old).error is ErrorCode.PRODUCER_FENCED
    assert bench.add(new, OUT0).error is ErrorCode.NONE


def test_a_producer_goes_on_after_an_error_under_the_next_epoch():
    bench, producer = started()
    bumped = bench.started(producer)
    assert bumped == (producer[0], 1)
    assert bench.started(producer) == bumped, "the answer was lost: the same again"
    bench.add(bumped, OUT0)
    assert bench.init(producer).error is ErrorCode.PRODUCER_FENCED
    assert bench.record().state is TransactionState.ONGOING, "and it disturbs nobody"


def test_with_epoch_bumps_a_late_end_does_not_touch_the_next_transaction():
    bench, first = started()
    bench.add(first, OUT0)
    answer = bench.end(first, bumps=True)
    second = answer.producer_id, answer.producer_epoch
    assert bench.end(first, bumps=True).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(second, bumps=True).error is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.settle()
    repeated = bench.end(first, bumps=True)
    assert (repeated.producer_id, repeated.producer_epoch) == second
    assert bench.end(first, commits=False, bumps=True).error is ErrorCode.INVALID_TXN_STATE
    bench.add(second, OUT0)
    assert bench.end(first, bumps=True).error is ErrorCode.PRODUCER_FENCED
    assert bench.verify(first, OUT0) is ErrorCode.PRODUCER_FENCED
    assert bench.verify(second, OUT0) is ErrorCode.NONE


def test_an_abort_of_nothing_raises_the_epoch():
    bench, producer = started()
    assert bench.end(producer, bumps=True).error is ErrorCode.INVALID_TXN_STATE
    answer = bench.end(producer, commits=False, bumps=True)
    assert (answer.producer_id, answer.producer_epoch) == (producer[0], 1)
    repeated = bench.end(producer, commits=False, bumps=True)
    assert repeated == replace(answer, request=repeated.request)


def used_up(bench: ProducerBench) -> Producer:
    """A producer with the last epoch that one is given."""
    key, record = bench.log[-1]
    assert isinstance(record, TransactionRecord)
    bench.log.append((key, replace(record, producer_epoch=LAST_CLIENT_EPOCH)))
    bench.replicated = len(bench.log)
    bench.fail_over()
    bench.replicate()
    return record.producer_id, LAST_CLIENT_EPOCH


def test_a_producer_id_whose_epochs_are_used_up_is_replaced_at_the_end_of_its_transaction():
    bench, _ = started()
    last = used_up(bench)
    bench.add(last, OUT0)
    ended = bench.end(last, bumps=True)
    assert ended.producer_id != last[0]
    assert ended.producer_epoch == 0
    early = ended.producer_id, 0
    assert bench.add(early, OUT0).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.end(early, bumps=True).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.init(early).error is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.settle()
    assert bench.written == {(last[0], OUT0): {True}}
    repeated = bench.end(last, bumps=True)
    assert repeated == replace(ended, request=repeated.request)
    fresh = ended.producer_id, 0
    assert bench.add(fresh, OUT0).error is ErrorCode.NONE
    assert bench.end(last, bumps=True).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("knows_itself", [True, False])
def test_a_producer_id_whose_epochs_are_used_up_is_replaced_at_the_next_start(knows_itself):
    bench, _ = started()
    last = used_up(bench)
    fresh = bench.started(last if knows_itself else (-1, -1))
    assert fresh[0] != last[0]
    assert fresh[1] == 0
    if knows_itself:
        assert bench.started(last) == fresh, "the answer was lost: the same again"
    else:
        assert bench.init(last).error is ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_of_the_last_epoch_is_replaced():
    bench, _ = started()
    last = used_up(bench)
    bench.add(last, OUT0)
    bench.pass_time(TIMEOUT_MS)
    bench.settle()
    assert bench.written == {(last[0], OUT0): {False}}
    reserved = last[0], LAST_CLIENT_EPOCH + 1
    assert bench.add(reserved, OUT0).error is ErrorCode.PRODUCER_FENCED, "it is nobody's"
    fresh = bench.started()
    assert fresh[0] != last[0]
    assert fresh[1] == 0
