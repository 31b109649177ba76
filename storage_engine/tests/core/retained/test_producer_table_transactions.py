"""Open, ended and aborted transactions of a partition: KIP-98, against a naive model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    TransactionCoordinatorFencedError,
)
from storage_engine.core.retained.producer_state import ProducerStates, SequencedBatch
from storage_engine.core.retained.producer_table import (
    ENDED_MAX,
    AbortedTransaction,
    PartitionTransactions,
    TransactionMarker,
)
from storage_engine.core.retained.retention import CleanedTransactions

COMMIT = TransactionMarker(True, 0)
ABORT = TransactionMarker(False, 0)


def test_without_transactions_all_below_the_high_watermark_is_stable():
    assert PartitionTransactions().last_stable_offset(7) == 7


def test_the_first_open_transaction_bounds_the_last_stable_offset():
    transactions = PartitionTransactions()
    transactions.note_data(1, 10)
    transactions.note_data(2, 12)
    transactions.note_data(1, 14)
    assert transactions.last_stable_offset(5) == 5
    assert transactions.last_stable_offset(20) == 10
    transactions.end(1, 16)
    assert transactions.last_stable_offset(20) == 12


def test_a_transaction_that_ended_above_the_high_watermark_still_bounds_it():
    transactions = PartitionTransactions()
    transactions.note_data(1, 10)
    transactions.end(1, 16)
    assert transactions.last_stable_offset(15) == 10
    assert transactions.last_stable_offset(16) == 10
    assert transactions.last_stable_offset(17) == 17


def test_an_aborted_transaction_tells_what_was_stable_when_it_ended():
    transactions = PartitionTransactions()
    transactions.note_data(1, 10)
    transactions.note_data(2, 12)
    assert transactions.end(2, 20) == AbortedTransaction(2, 12, 20, 10)
    assert transactions.end(1, 21) == AbortedTransaction(1, 10, 21, 22)


def test_a_marker_without_data_ends_nothing():
    transactions = PartitionTransactions()
    assert transactions.end(1, 5) is None
    assert transactions.last_stable_offset(9) == 9


def test_what_is_remembered_of_ended_transactions_is_bounded_and_never_too_high():
    transactions = PartitionTransactions()
    for number in range(3 * ENDED_MAX):
        transactions.note_data(1, 2 * number)
        transactions.end(1, 2 * number + 1)
    assert len(transactions.ended) == ENDED_MAX
    assert transactions.last_stable_offset(4 * ENDED_MAX + 1) == 0
    assert transactions.last_stable_offset(6 * ENDED_MAX - 1) == 6 * ENDED_MAX - 2
    assert transactions.last_stable_offset(6 * ENDED_MAX) == 6 * ENDED_MAX


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(0, 3)),
        st.tuples(st.just("end"), st.integers(0, 3)),
        st.tuples(st.just("replicated"), st.floats(0, 1)),
    ),
    max_size=60,
)


@given(actions=ACTIONS)
def test_the_last_stable_offset_is_that_of_a_naive_model(actions):
    transactions = PartitionTransactions()
    end = high_watermark = 0
    ongoing: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    for action, value in actions:
        if action == "data":
            transactions.note_data(value, end)
            ongoing.setdefault(value, end)
            end += 1
        elif action == "end":
            first = ongoing.pop(value, None)
            aborted = transactions.end(value, end)
            if first is None:
                assert aborted is None
            else:
                ended.append((first, end))
                stable = min(ongoing.values(), default=end + 1)
                assert aborted == (value, first, end, stable)
            end += 1
        else:
            high_watermark += int((end - high_watermark) * value)
        undecided = [*ongoing.values(), *(f for f, last in ended if last >= high_watermark)]
        expected = min([high_watermark, *undecided])
        assert transactions.last_stable_offset(high_watermark) == expected
        again = PartitionTransactions(reversed(transactions.ongoing.items()), transactions.ended)
        assert again.last_stable_offset(high_watermark) == expected


def test_a_marker_of_an_older_producer_epoch_is_refused():
    states = ProducerStates()
    states.record(1, 5, SequencedBatch(0, 0, 0, 0, 0), now_ms=0, in_transaction=True)
    with pytest.raises(InvalidProducerEpochError, match="epoch 4"):
        states.check_marker(1, 4, 0)
    states.check_marker(1, 5, 0)
    states.check_marker(1, 6, 0)
    states.check_marker(2, 0, 0)


def test_a_marker_with_an_epoch_of_its_own_ends_nothing_that_was_written_under_it():
    """Sent twice, the copy that comes late would end the transaction after its own (KIP-1228)."""
    states = ProducerStates()
    states.record(1, 5, SequencedBatch(0, 0, 0, 0, 0), now_ms=0, in_transaction=True)
    states.check_marker(1, 6, 0, has_own_epoch=True)
    states.record_marker(1, 6, TransactionMarker(True, 0), offset=1, now_ms=0)
    # Once more before the next one begins: harmless.
    states.check_marker(1, 6, 0, has_own_epoch=True)
    states.record(1, 6, SequencedBatch(0, 0, 2, 2, 0), now_ms=0, in_transaction=True)
    with pytest.raises(InvalidProducerEpochError, match="has come late"):
        states.check_marker(1, 6, 0, has_own_epoch=True)
    states.check_marker(1, 7, 0, has_own_epoch=True)
    # Of producers that keep their epoch it can't be known.
    states.check_marker(1, 6, 0)


def test_a_marker_of_an_older_coordinator_is_refused():
    states = ProducerStates()
    states.record_marker(1, 0, TransactionMarker(True, 7), offset=0, now_ms=0)
    with pytest.raises(TransactionCoordinatorFencedError, match="coordinator epoch 6"):
        states.check_marker(1, 0, 6)
    states.check_marker(1, 0, 7)
    states.check_marker(2, 0, 6)


def test_a_producer_with_an_open_transaction_writes_nothing_outside_of_it():
    states = ProducerStates()
    states.record(1, 0, SequencedBatch(0, 0, 0, 0, 0), now_ms=0, in_transaction=True)
    with pytest.raises(InvalidTxnStateError):
        states.check(1, 0, 1, 1)
    assert states.check(1, 0, 0, 0, in_transaction=True) is not None
    assert states.check(1, 0, 1, 1, in_transaction=True) is None
    with pytest.raises(InvalidTxnStateError):
        states.copy_of([1]).check(1, 0, 1, 1)
    states.record_marker(1, 0, COMMIT, offset=1, now_ms=0)
    assert states.check(1, 0, 1, 1) is None


def test_a_producer_with_an_open_transaction_is_not_forgotten():
    states = ProducerStates()
    states.record(1, 0, SequencedBatch(0, 0, 0, 0, 0), now_ms=0, in_transaction=True)
    assert states.expire(now_ms=10_000, expiration_ms=100) == 0
    assert states.record_marker(1, 0, ABORT, offset=1, now_ms=10_000) is not None
    assert states.expire(now_ms=20_000, expiration_ms=100) == 1


def test_a_walk_tells_aborted_data_from_committed_and_markers_with_data_from_others():
    walk = CleanedTransactions([AbortedTransaction(1, 0, 2, 3), AbortedTransaction(1, 8, 9, 10)])
    assert walk.note_data(1, 0)
    assert not walk.note_data(2, 1)
    assert walk.note_marker(1, 2) == (True, AbortedTransaction(1, 0, 2, 3))
    assert not walk.note_data(1, 3)
    assert walk.note_marker(1, 4) == (True, None)
    assert walk.note_marker(1, 5) == (False, None)
    assert walk.note_marker(2, 6) == (True, None)
    assert walk.note_marker(1, 9) == (False, None)
