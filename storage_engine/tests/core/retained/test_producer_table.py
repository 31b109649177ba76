"""Producer ids that clients make up: how many a log remembers, and who is forgotten for them."""

import pytest

from storage_engine.core.errors import TooManyProducersError
from storage_engine.core.retained import producer_state
from storage_engine.core.retained.producer_state import (
    IDLE_MS,
    ProducerStates,
    SequencedBatch,
)
from storage_engine.core.retained.producer_table import (
    ProducerEntry,
    ProducerTable,
    TransactionMarker,
)

MOST = 100
DAY_MS = 24 * 60 * 60 * 1000
HONEST = 7


@pytest.fixture(autouse=True)
def few(monkeypatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", MOST)


def batch(sequence: int, offset: int = 0) -> SequencedBatch:
    return SequencedBatch(sequence, sequence, offset, offset, 1)


def write(states: ProducerStates, producer_id: int, sequence: int, now_ms: int, **how) -> None:
    assert states.check(producer_id, 0, sequence, sequence, **how) is None
    states.record(producer_id, 0, batch(sequence), now_ms=now_ms, **how)


def flood(states: ProducerStates, now_ms: int) -> int:
    """Ever new producers write until one is refused; how many could."""
    for number in range(2 * MOST):
        try:
            write(states, 1_000_000 + now_ms + number, 0, now_ms)
        except TooManyProducersError as refusal:
            assert refusal.retriable
            return number
    raise AssertionError("none was refused")


def test_one_that_writes_goes_on_and_a_repeat_of_it_is_known_in_a_flood_of_strangers():
    states = ProducerStates()
    write(states, HONEST, 0, now_ms=0)
    assert flood(states, now_ms=1) == MOST - 1
    duplicate = states.check(HONEST, 0, 0, 0)
    assert duplicate is not None and duplicate.base_offset == 0
    states.expire(now_ms=IDLE_MS - 1, expiration_ms=DAY_MS)
    assert states.check(HONEST, 0, 0, 0) == duplicate, "its client may still send it again"
    write(states, HONEST, 1, now_ms=IDLE_MS - 1)
    states.expire(now_ms=IDLE_MS + 1, expiration_ms=DAY_MS)
    assert [entry.producer_id for entry in states] == [HONEST]
    assert flood(states, now_ms=2 * IDLE_MS) == MOST - 1


def test_silent_producers_of_a_log_with_few_stay_for_the_time_that_was_set():
    states = ProducerStates()
    for number in range(MOST // 2 - 1):
        write(states, number, 0, now_ms=0)
    assert states.expire(now_ms=DAY_MS - 1, expiration_ms=DAY_MS) == 0
    assert states.expire(now_ms=DAY_MS, expiration_ms=DAY_MS) == MOST // 2 - 1


def test_one_that_writes_without_a_pause_keeps_nobody_from_being_forgotten():
    states = ProducerStates()
    write(states, HONEST, 0, now_ms=0)
    write(states, 1, 0, now_ms=1)
    pause_ms = IDLE_MS // 1_000
    assert pause_ms < 1_000
    for number in range(1, 1_100):
        write(states, HONEST, number, now_ms=number * pause_ms)
    assert states.expire(now_ms=1_100 * pause_ms, expiration_ms=IDLE_MS) == 1
    assert [entry.producer_id for entry in states] == [HONEST]


def test_a_transaction_begins_and_an_open_one_is_never_forgotten_however_many_there_are():
    states = ProducerStates()
    flood(states, now_ms=0)
    write(states, HONEST, 0, now_ms=0, in_transaction=True)
    states.expire(now_ms=2 * DAY_MS, expiration_ms=DAY_MS)
    assert [entry.producer_id for entry in states] == [HONEST]
    states.record_marker(HONEST, 0, TransactionMarker(True, 0), offset=1, now_ms=2 * DAY_MS)
    assert states.check(HONEST, 0, 1, 1) is None


def test_a_request_of_many_new_producers_is_refused_as_one_of_them_would_be():
    """Its batches are checked against a part of the table."""
    states = ProducerStates()
    flood(states, now_ms=0)
    with pytest.raises(TooManyProducersError):
        states.copy_of([5, 6]).check(5, 0, 0, 0)


def test_one_step_forgets_a_bounded_number_and_looks_no_further_than_it_must(monkeypatch):
    monkeypatch.setattr(producer_state, "EXPIRED_AT_ONCE", 10)
    states = ProducerStates()
    for number in range(25):
        write(states, number, 0, now_ms=0)
    gone = [states.expire(now_ms=DAY_MS, expiration_ms=DAY_MS) for _ in range(4)]
    assert gone == [10, 10, 5, 0]


def test_a_producer_seen_by_a_clock_that_was_ahead_holds_up_nobody():
    states = ProducerStates()
    write(states, 1, 0, now_ms=10 * DAY_MS)
    write(states, 2, 0, now_ms=0)
    assert states.expire(now_ms=DAY_MS, expiration_ms=DAY_MS) == 1
    assert [entry.producer_id for entry in states] == [1]


def test_a_table_keeps_those_that_wrote_last_at_its_end_and_what_it_was_given():
    table = ProducerTable()
    for number in range(3):
        table.begin(number, 0, 0, batch(number))
    first = table.get(0)
    assert first is not None and first.batches == (batch(0),)
    first.batches = (batch(0), batch(1))
    table.note_seen(first, 5_000)
    table.put(first)
    assert list(table.seen()) == [(1, 0), (2, 0), (0, 5_000)]
    again = ProducerTable([each.packed() for each in table])
    assert again.packed() == table.packed()
    known = again.get(0)
    assert isinstance(known, ProducerEntry) and known.batches == (batch(0), batch(1))


def test_compaction_keeps_what_producers_need_however_they_are_kept():
    table = ProducerTable()
    table.begin(1, 0, 0, batch(0, offset=10))
    table.put(ProducerEntry(2, 3, 0, (batch(0, offset=11), batch(1, offset=12))))
    table.put(ProducerEntry(4, 5, 0))
    assert table.kept_in_log() == ([10, 11, 12], [(4, 5)])
