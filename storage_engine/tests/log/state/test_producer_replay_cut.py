"""The producers of a log whose end is dropped: as a replay of what is left finds them, but without
reading all of it (R-LOG8).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import OutOfOrderSequenceError
from storage_engine.core.retained.producer_state import ProducerStates
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.log import truncation
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.state import producer_replay
from storage_engine.log.state.producer_replay import load_producers
from storage_engine.tests.log.support import append, open_log
from storage_engine.tests.log.transaction_support import write

PRODUCERS = (4, 5, 6)
SMALL_SEGMENTS = LogConfig(segment_bytes=2000, index_interval_bytes=200, file_delete_delay_ms=0)
LARGE_SEGMENTS = LogConfig(segment_bytes=1 << 24, index_interval_bytes=1000)

data = st.tuples(st.just("data"), st.sampled_from(PRODUCERS), st.integers(1, 4))
steps = st.one_of(
    data,
    data,
    data,
    st.tuples(st.just("none"), st.just(-1), st.integers(1, 30)),
    st.tuples(st.just("epoch"), st.sampled_from(PRODUCERS), st.integers(1, 2)),
    st.tuples(st.just("transaction"), st.just(9), st.integers(1, 3)),
    st.tuples(st.just("marker"), st.just(9), st.integers(0, 1)),
)


def found_by_replay(log: PartitionLog) -> ProducerStates:
    return load_producers(
        log.snapshots,
        log.segments.all,
        log_start_offset=log.log_start_offset,
        has_gaps=log.cleaning.may_have_gaps,
        now_ms=0,
    )


def told(states: ProducerStates) -> tuple[object, ...]:
    entries = sorted(states, key=lambda entry: entry.producer_id)
    return (
        [(e.producer_id, e.epoch, e.coordinator_epoch, list(e.batches)) for e in entries],
        states.transactions.ongoing,
    )


class Writers:
    """Producers that write on where the log has them."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.epochs = dict.fromkeys(PRODUCERS, 0)

    def step(self, kind: str, producer: int, amount: int) -> None:
        log = self.log
        if kind == "none":
            append(log, amount)
        elif kind == "transaction":
            write(log, producer, *[(b"k", b"v")] * amount)
        elif kind == "marker":
            marker = TransactionMarker(bool(amount), 0)
            log.leader_appends.append_marker(producer, 0, marker, leader_epoch=0, now_ms=5000)
        else:
            if kind == "epoch":
                self.epochs[producer] += amount
            epoch = self.epochs[producer]
            sequence = log.producer_state.next_sequence(producer, epoch)
            append(log, amount, producer=(producer, epoch, sequence))


@pytest.mark.parametrize("config", [SMALL_SEGMENTS, LARGE_SEGMENTS])
@given(
    written=st.lists(steps, min_size=25, max_size=60),
    cut=st.integers(0, 15),
    window=st.sampled_from([2, 9]),
)
def test_a_cut_leaves_the_producers_that_a_replay_finds(
    tmp_path_factory, config, written, cut, window
):
    log = open_log(tmp_path_factory.mktemp("log"), config)
    writers = Writers(log)
    for step in written:
        writers.step(*step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_replay, "FIRST_WINDOW", window)
        log.truncation.truncate_to(max(0, log.log_end_offset - cut))
    assert told(log.producer_state) == told(found_by_replay(log))
    log.close()


LONG = 3001


def long_log(path) -> tuple[PartitionLog, Writers]:
    """One batch of producer 6, and 3,000 of 4, with some of 5 among them."""
    log = open_log(path, LARGE_SEGMENTS)
    writers = Writers(log)
    writers.step("data", 6, 1)
    for number in range(LONG - 1):
        writers.step("data", 5 if number % 100 == 7 else 4, 1)
    return log, writers


@pytest.mark.parametrize("behind", [[4] * 7, [6], [7, 7, 4]], ids=["busy", "rare", "new"])
def test_a_short_cut_reads_a_few_batches_however_long_the_log_is(tmp_path, monkeypatch, behind):
    log, writers = long_log(tmp_path)
    writers.epochs[7] = 0
    for producer in behind:
        writers.step("data", producer, 1)
    monkeypatch.setattr(producer_replay, "FIRST_WINDOW", 16)
    monkeypatch.setattr(truncation, "load_producers", None)
    read = 0
    scan = LogSegment.scan

    def counted(*args, **options):
        nonlocal read
        for each in scan(*args, **options):
            read += 1
            yield each

    monkeypatch.setattr(LogSegment, "scan", counted)
    log.truncation.truncate_to(log.log_end_offset - len(behind))
    assert log.log_end_offset == LONG
    assert 0 < read < 300
    monkeypatch.undo()
    assert told(log.producer_state) == told(found_by_replay(log))
    for producer in (4, 6, 7):
        writers.step("data", producer, 1)
    log.close()


def test_what_was_refused_behind_the_cut_is_no_bound(tmp_path):
    log, _ = long_log(tmp_path)
    log.producer_state.note_refused(77, 0, 0)
    with pytest.raises(OutOfOrderSequenceError):
        append(log, producer=(77, 0, 1))
    log.producer_state.forgotten_to = 100
    log.truncation.truncate_to(log.log_end_offset - 1)
    append(log, producer=(77, 0, 1))
    log.close()


@pytest.mark.parametrize("behind", ["transaction", "marker", "many"])
def test_a_cut_that_a_few_batches_do_not_explain_is_replayed(tmp_path, monkeypatch, behind):
    log, writers = long_log(tmp_path)
    if behind == "many":
        monkeypatch.setattr(producer_replay, "TAIL_BATCHES_MAX", 3)
    end = log.log_end_offset
    writers.step("transaction", 9, 1)
    if behind == "marker":
        end = log.log_end_offset
        writers.step("marker", 9, 1)
    if behind == "many":
        end -= 5
    log.truncation.truncate_to(end)
    assert log.producer_state.transactions.is_open(9) == (behind == "marker")
    assert told(log.producer_state) == told(found_by_replay(log))
    log.close()


def test_an_open_transaction_before_the_cut_stays_open(tmp_path):
    log, writers = long_log(tmp_path)
    writers.step("transaction", 9, 1)
    first = log.log_end_offset - 1
    end = log.log_end_offset
    writers.step("data", 4, 1)
    log.truncation.truncate_to(end)
    assert log.producer_state.transactions.ongoing == {9: first}
    with pytest.raises(Exception, match="open transaction"):
        append(log, producer=(9, 0, 1))
    log.close()


def test_a_dropped_transaction_of_a_producer_that_wrote_outside_of_one_is_open_no_more(tmp_path):
    """The batches before the cut tell all of the producer's sequences, and nothing of that."""
    log, writers = long_log(tmp_path)
    end = log.log_end_offset
    write(log, 4, (b"k", b"v"))
    assert log.producer_state.transactions.is_open(4)
    log.truncation.truncate_to(end)
    assert told(log.producer_state) == told(found_by_replay(log))
    assert log.last_stable_offset(end) == end
    writers.step("data", 4, 1)
    log.close()


def test_a_dropped_marker_leaves_no_epoch_of_its_coordinator(tmp_path):
    log, _writers = long_log(tmp_path)
    end = log.log_end_offset
    marker = TransactionMarker(False, 7)
    log.leader_appends.append_marker(4, 0, marker, leader_epoch=0, now_ms=5000)
    log.truncation.truncate_to(end)
    assert told(log.producer_state) == told(found_by_replay(log))
    older = TransactionMarker(False, 6)
    log.leader_appends.append_marker(4, 0, older, leader_epoch=0, now_ms=5000)
    log.close()


def test_a_marker_before_the_cut_is_none_of_the_producers_batches(tmp_path):
    log, writers = long_log(tmp_path)
    write(log, 4, (b"k", b"v"))
    marker = TransactionMarker(True, 0)
    log.leader_appends.append_marker(4, 0, marker, leader_epoch=0, now_ms=5000)
    for _ in range(3):
        writers.step("data", 4, 1)
    end = log.log_end_offset
    writers.step("data", 4, 1)
    log.truncation.truncate_to(end)
    assert told(log.producer_state) == told(found_by_replay(log))
    assert log.producer_state.get(4).batches[0].first_sequence >= 0
    log.close()
