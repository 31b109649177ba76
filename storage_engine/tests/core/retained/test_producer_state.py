"""Sequence checks of idempotent producers: KIP-98, KIP-360."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import (
    EarlierBatchExpectedError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
)
from storage_engine.core.retained.producer_state import (
    ANY_FORGOTTEN,
    BATCHES_REMEMBERED,
    MAX_SEQUENCE,
    NONE_FORGOTTEN,
    REFUSALS_REMEMBERED,
    ProducerStates,
    SequencedBatch,
)
from storage_engine.core.retained.producer_table import TransactionMarker, single_use


class Writer:
    """Appends batches of one producer to a table, as a log would."""

    def __init__(self, *, forgotten_to: int = NONE_FORGOTTEN) -> None:
        self.states = ProducerStates(forgotten_to=forgotten_to)
        self.next_offset = 0

    def send(self, sequence: int, count: int = 1, epoch: int = 0) -> tuple[str, int]:
        last = (sequence + count - 1) & MAX_SEQUENCE
        duplicate = self.states.check(7, epoch, sequence, last)
        if duplicate is not None:
            return "duplicate", duplicate.base_offset
        base = self.next_offset
        self.next_offset += count
        self.states.record(
            7, epoch, SequencedBatch(sequence, last, base, base + count - 1, 100), now_ms=100
        )
        return "appended", base


def test_batches_in_sequence_are_appended():
    writer = Writer()
    assert writer.send(0, 10) == ("appended", 0)
    assert writer.send(10, 5) == ("appended", 10)


def test_a_repeated_batch_is_a_duplicate_with_the_offset_of_the_first_time():
    writer = Writer()
    for sequence in range(0, 50, 10):
        writer.send(sequence, 10)
    for sequence in range(0, 50, 10):
        assert writer.send(sequence, 10) == ("duplicate", sequence)
    assert writer.send(50, 10) == ("appended", 50)


def test_a_duplicate_older_than_the_batches_remembered_is_out_of_order():
    writer = Writer()
    for sequence in range(BATCHES_REMEMBERED + 1):
        writer.send(sequence)
    assert writer.send(1) == ("duplicate", 1)
    with pytest.raises(OutOfOrderSequenceError):
        writer.send(0)


def test_a_gap_is_out_of_order():
    writer = Writer()
    writer.send(0, 10)
    with pytest.raises(OutOfOrderSequenceError, match="sent sequence 11, expected 10"):
        writer.send(11)


def test_a_repeated_sequence_with_another_count_is_out_of_order():
    writer = Writer()
    writer.send(0, 10)
    with pytest.raises(OutOfOrderSequenceError):
        writer.send(0, 5)


def test_the_sequence_wraps_from_the_largest_int32_to_0():
    writer = Writer(forgotten_to=ANY_FORGOTTEN)
    assert writer.send(MAX_SEQUENCE - 1, 2) == ("appended", 0)
    assert writer.send(0) == ("appended", 2)
    assert writer.send(MAX_SEQUENCE - 1, 2) == ("duplicate", 0)


def test_a_batch_that_wraps_inside_is_followed_by_the_right_sequence():
    writer = Writer(forgotten_to=ANY_FORGOTTEN)
    assert writer.send(MAX_SEQUENCE, 3) == ("appended", 0)
    assert writer.send(2) == ("appended", 3)


def test_a_new_epoch_begins_with_sequence_0():
    writer = Writer()
    writer.send(0, 10)
    with pytest.raises(OutOfOrderSequenceError, match="begins epoch 1 with sequence 10"):
        writer.send(10, epoch=1)
    assert writer.send(0, epoch=1) == ("appended", 10)
    assert writer.send(1, epoch=1) == ("appended", 11)


def test_an_older_epoch_is_fenced():
    writer = Writer()
    writer.send(0, epoch=3)
    with pytest.raises(InvalidProducerEpochError, match="epoch 2"):
        writer.send(1, epoch=2)


def test_the_batches_of_an_older_epoch_are_no_duplicates_of_the_new_one():
    writer = Writer()
    writer.send(0, epoch=0)
    assert writer.send(0, epoch=1) == ("appended", 1)


def test_an_unknown_producer_must_begin_with_0_while_the_history_is_complete():
    writer = Writer()
    with pytest.raises(OutOfOrderSequenceError, match="expected sequence 0"):
        writer.send(4)
    assert writer.send(0) == ("appended", 0)


def test_an_unknown_producer_goes_on_when_its_batch_comes_again_and_nothing_before_it():
    """As after its topic was deleted and created again: clients send again in order."""
    writer = Writer()
    with pytest.raises(EarlierBatchExpectedError) as refusal:
        writer.send(4)
    assert refusal.value.retriable
    writer.states.note_refused(7, 0, 4)
    with pytest.raises(OutOfOrderSequenceError, match="4 was refused here"):
        writer.send(5)
    assert [writer.send(each) for each in (4, 5)] == [("appended", 0), ("appended", 1)]


def test_an_earlier_batch_that_comes_meanwhile_is_the_first():
    writer = Writer()
    writer.states.note_refused(7, 0, 4)
    with pytest.raises(EarlierBatchExpectedError):
        writer.send(3)
    writer.states.note_refused(7, 0, 3)
    with pytest.raises(OutOfOrderSequenceError, match="3 was refused here"):
        writer.send(4)
    assert [writer.send(each) for each in (3, 4)] == [("appended", 0), ("appended", 1)]
    with pytest.raises(EarlierBatchExpectedError):
        Writer().states.check(7, 1, 4, 4)


def test_an_unknown_producer_may_begin_anywhere_once_something_was_forgotten():
    """KIP-360: its records may have been deleted, and its state with them."""
    assert Writer(forgotten_to=ANY_FORGOTTEN).send(4) == ("appended", 0)


def test_an_expired_producer_is_forgotten_and_may_come_back_anywhere():
    writer = Writer()
    writer.send(0)
    assert writer.states.expire(now_ms=1099, expiration_ms=1000) == 0
    assert writer.states.expire(now_ms=1100, expiration_ms=1000) == 1
    assert writer.states.get(7) is None
    assert writer.send(1) == ("appended", 1)


def test_a_producer_above_all_that_expired_must_begin_with_0():
    writer = Writer()
    writer.states.record(6, 0, SequencedBatch(0, 0, 0, 0, 0), now_ms=0)
    writer.states.expire(now_ms=1000, expiration_ms=1000)
    assert writer.states.forgotten_to == 6
    with pytest.raises(OutOfOrderSequenceError, match="producer 7 starts with sequence 1"):
        writer.send(1)
    assert writer.send(0) == ("appended", 0)


def test_a_producer_of_one_transaction_that_expires_says_nothing_about_others():
    writer = Writer()
    writer.states.record(single_use(3), 0, SequencedBatch(0, 0, 0, 0, 0), now_ms=0)
    assert writer.states.expire(now_ms=1000, expiration_ms=1000) == 1
    with pytest.raises(OutOfOrderSequenceError):
        writer.send(1)


def test_a_marker_of_a_producer_without_batches_lets_no_later_one_begin_in_the_middle():
    writer = Writer(forgotten_to=6)
    writer.states.record_marker(7, 0, TransactionMarker(True, 0), offset=0, now_ms=100)
    with pytest.raises(OutOfOrderSequenceError):
        writer.send(1)


@pytest.mark.parametrize("first", [0, 40, MAX_SEQUENCE])
def test_nothing_of_a_producer_that_may_be_forgotten_passes_a_batch_that_was_refused(first):
    """It may begin anywhere, but will send the refused one again: first that, then the next."""
    writer = Writer(forgotten_to=ANY_FORGOTTEN)
    second, third = (first + 1) & MAX_SEQUENCE, (first + 2) & MAX_SEQUENCE
    writer.states.note_refused(7, 0, first)
    writer.states.note_refused(7, 0, second)
    for sequence in (third, second):
        with pytest.raises(OutOfOrderSequenceError, match=f"{first} was refused here"):
            writer.send(sequence)
    assert [writer.send(each) for each in (first, second, third)] == [
        ("appended", 0), ("appended", 1), ("appended", 2),
    ]  # fmt: skip


def test_a_refusal_stands_until_the_batch_comes_and_for_its_epoch_only():
    writer = Writer(forgotten_to=ANY_FORGOTTEN)
    writer.states.note_refused(7, 1, 5)
    writer.states.note_refused(7, 0, 3)
    with pytest.raises(OutOfOrderSequenceError):
        writer.send(6, epoch=1)
    assert writer.states.copy_of([7]).check(7, 0, 6, 6) is None
    assert writer.send(5, epoch=1) == ("appended", 0)
    writer.states.expire(now_ms=2000, expiration_ms=1000)
    assert writer.send(7, epoch=1) == ("appended", 1), "the refusal went with the batch"


def test_a_trial_copy_knows_of_refusals():
    writer = Writer(forgotten_to=ANY_FORGOTTEN)
    writer.states.note_refused(7, 0, 5)
    with pytest.raises(OutOfOrderSequenceError):
        writer.states.copy_of([7]).check(7, 0, 6, 6)


def test_refusals_of_ever_new_producers_take_a_bounded_room():
    states = ProducerStates(forgotten_to=ANY_FORGOTTEN)
    for producer_id in range(REFUSALS_REMEMBERED + 1):
        states.note_refused(producer_id, 0, 0)
    assert states.check(0, 0, 1, 1) is None, "the oldest went"
    with pytest.raises(OutOfOrderSequenceError):
        states.check(1, 0, 1, 1)


def test_a_table_that_was_cut_misses_only_what_the_whole_one_knew_or_had_forgotten():
    whole = ProducerStates(forgotten_to=5)
    for producer_id in (3, 9, single_use(1)):
        whole.record(producer_id, 0, SequencedBatch(0, 0, 0, 0, 0), now_ms=0)
    cut = ProducerStates(forgotten_to=ANY_FORGOTTEN)
    cut.record(3, 0, SequencedBatch(0, 0, 0, 0, 0), now_ms=0)
    cut.cut_from(whole)
    assert cut.forgotten_to == 9


def test_a_marker_with_a_newer_epoch_resets_the_sequence():
    """KIP-890: the coordinator raises the epoch with every transaction's end."""
    writer = Writer()
    writer.send(0, 10)
    writer.states.record_marker(7, 1, TransactionMarker(True, 0), offset=10, now_ms=200)
    with pytest.raises(OutOfOrderSequenceError):
        writer.send(10, epoch=1)
    assert writer.send(0, epoch=1) == ("appended", 10)


def test_a_marker_with_the_same_epoch_keeps_the_sequence():
    writer = Writer()
    writer.send(0, 10)
    writer.states.record_marker(7, 0, TransactionMarker(True, 0), offset=10, now_ms=200)
    assert writer.send(10) == ("appended", 10)


def test_a_trial_copy_changes_nothing():
    writer = Writer()
    writer.send(0)
    trial = writer.states.copy_of([7, 8])
    trial.record(7, 0, SequencedBatch(1, 1, 1, 1, 100), now_ms=100)
    assert writer.send(1) == ("appended", 1)


@given(
    counts=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    retries=st.lists(st.integers(0, 4), max_size=12),
    start=st.sampled_from([0, MAX_SEQUENCE - 60, MAX_SEQUENCE]),
)
def test_retries_of_the_last_five_never_append_twice(counts, retries, start):
    writer = Writer(forgotten_to=ANY_FORGOTTEN)
    sent: list[tuple[int, int, int]] = []
    sequence = start
    for step, count in enumerate(counts):
        outcome, base = writer.send(sequence, count)
        assert outcome == "appended"
        sent.append((sequence, count, base))
        sequence = (sequence + count) & MAX_SEQUENCE
        for back in retries[: step + 1]:
            if back < len(sent):
                again, count_again, first_base = sent[-1 - back]
                assert writer.send(again, count_again) == ("duplicate", first_base)
    assert writer.next_offset == sum(counts)


@pytest.mark.parametrize("commits", [True, False])
def test_a_producer_for_one_transaction_is_forgotten_with_its_marker(commits):
    states, producer_id = ProducerStates(), single_use(7)
    states.record(producer_id, 0, SequencedBatch(0, 0, 0, 0, 100), now_ms=100, in_transaction=True)
    for offset in (1, 2):
        # A marker that is repeated is harmless.
        states.check_marker(producer_id, 0, 3)
        marker = TransactionMarker(commits, 3)
        ended = states.record_marker(producer_id, 0, marker, offset=offset, now_ms=100)
        assert (ended is not None) == (offset == 1 and not commits)
        assert states.get(producer_id) is None
    assert states.forgotten_to == NONE_FORGOTTEN and not states.transactions.ongoing
