"""A follower's append of many batches at once is the same as the append of each: outcomes, bytes,
segments, indexes, producers, transactions.
"""

import tempfile
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.world.disk import CrashError, SimulatedDisk
from storage_engine.core.errors import CorruptRecordError, KafkaError, LogStorageError
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.log import follower_appends
from storage_engine.log.files.disk import RealDisk
from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.records.control_record import encode_marker
from storage_engine.protocol.records.record_batch import patch as place
from storage_engine.protocol.records.record_batch import read_header, seal
from storage_engine.tests.log.support import join, make_batch, open_log, read_all, state_of
from storage_engine.tests.sampling import examples

CONFIGS = [
    LogConfig(),
    LogConfig(index_interval_bytes=0),
    LogConfig(index_interval_bytes=0, segment_index_bytes=240),
    LogConfig(segment_bytes=1500, index_interval_bytes=150, segment_index_bytes=36),
    LogConfig(segment_bytes=3000, index_interval_bytes=200, segment_ms=1000),
]
LIES = {
    "base_offset": [-1, 0, 3, (1 << 63) - 1],
    "partition_leader_epoch": [-1, 2, 4],
    "magic": [1, 3],
    "attributes": [-1, 5, 8, 0x10, 0x20, 0x40, 0x80],
    "last_offset_delta": [-1, 7, 0x7FFFFFFF],
    "records_count": [-1, 0, 9],
    "max_timestamp": [-1, 1 << 40],
    "producer_id": [-2, 7, 8],
    "producer_epoch": [-1, 1],
    "base_sequence": [-1, 0, 5],
}
"""Fields of a header, and what is rare or wrong in them."""


@st.composite
def batches(draw):
    """One that a leader may have: plain, of a producer, of a transaction, or a marker."""
    kind = draw(st.sampled_from(["plain", "plain", "producer", "producer", "transaction", "end"]))
    if kind == "end":
        marker = TransactionMarker(draw(st.booleans()), 0)
        return encode_marker(draw(st.integers(7, 8)), 0, marker, timestamp_ms=1500)
    producer = (-1, -1, -1)
    if kind != "plain":
        producer = (draw(st.integers(7, 8)), draw(st.integers(0, 1)), draw(st.integers(0, 9)))
    return make_batch(
        draw(st.integers(1, 3)),
        payload=bytes(draw(st.sampled_from([50, 50, 50, 0, 200]))),
        timestamp_ms=draw(st.sampled_from([-1, 0, 1000, 1500, 2000, 2000])),
        producer=producer,
        attributes=0x10 if kind == "transaction" else draw(st.sampled_from([0, 4])),
    )


@st.composite
def answers(draw):
    """A leader's answers to successive fetches, a few of which break the rules."""
    made = []
    offset = 0
    for _ in range(draw(st.integers(1, 4))):
        epoch = draw(st.sampled_from([3, 3, 3, 4]))
        some = []
        for each in draw(st.lists(batches(), min_size=1, max_size=12)):
            batch = memoryview(bytearray(each))
            offset += draw(st.sampled_from([0] * 20 + [1, -1]))
            place(batch, 0, base_offset=max(0, offset), leader_epoch=epoch)
            offset = read_header(batch).next_offset
            some.append(batch)
        if draw(st.integers(0, 3)) == 0:
            number = draw(st.integers(0, len(some) - 1))
            field = draw(st.sampled_from(sorted(LIES)))
            false = bytearray(some[number])
            lie = {field: draw(st.sampled_from(LIES[field]))}
            seal(false, 0, read_header(false)._replace(**lie))
            some[number] = memoryview(false)
        data = bytearray(b"".join(some))
        if draw(st.integers(0, 5)) == 0:
            data[draw(st.integers(0, len(data) - 1))] ^= draw(st.integers(1, 255))
        if draw(st.integers(0, 3)) == 0:
            del data[draw(st.integers(0, len(data))) :]
        made.append(memoryview(data))
    return made


def outcome_of(log, data):
    try:
        return log.follower_appends.append(memoryview(bytearray(data)))
    except KafkaError as failure:
        return type(failure), str(failure)


def transactions_of(log):
    return dict(log.producer_state.transactions.ongoing), log.leader_epochs.entries


def compare(given_answers, config):
    """Takes them as runs where that can be, and batch by batch; returns the outcomes."""
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        alone = open_log(Path(folder, "alone"), config)
        together = open_log(Path(folder, "together"), config)
        try:
            for data in given_answers:
                with patch.object(follower_appends, "stored_run", lambda *_: None):
                    expected = outcome_of(alone, data)
                outcomes.append(outcome_of(together, data))
                assert outcomes[-1] == expected
            assert state_of(together) == state_of(alone)
            assert transactions_of(together) == transactions_of(alone)
        finally:
            alone.close_without_flush()
            together.close_without_flush()
    return outcomes


@settings(max_examples=examples(300), deadline=None)
@given(given_answers=answers(), config=st.sampled_from(CONFIGS))
def test_an_answer_taken_as_a_run_is_like_one_taken_batch_by_batch(given_answers, config):
    compare(given_answers, config)


def in_order(*made, first=1, epoch=3, gaps=()):
    """One answer; `gaps` has how much the offset before the batch of a number is off."""
    data = []
    for number, each in enumerate(made):
        first += dict(gaps).get(number, 0)
        batch = memoryview(bytearray(each))
        place(batch, 0, base_offset=first, leader_epoch=epoch)
        first = read_header(batch).next_offset
        data.append(batch)
    return join(*data)


def of_transaction(number):
    return make_batch(producer=(7, 0, number), attributes=0x10)


ABORT = encode_marker(7, 0, TransactionMarker(False, 0), timestamp_ms=1000)
PLAIN = [make_batch(timestamp_ms=1000) for _ in range(8)]
RARE = {
    "a gap in the middle": in_order(*PLAIN, gaps=[(4, 5)]),
    "a gap before the first": in_order(*PLAIN, gaps=[(0, 5)]),
    "a repeated offset": in_order(*PLAIN, gaps=[(4, -1)]),
    "a marker that aborts": in_order(*map(of_transaction, range(8)), ABORT),
    "a marker of another producer's epoch": in_order(*map(of_transaction, range(8)), ABORT, *PLAIN),
    "an open transaction of many batches": in_order(*map(of_transaction, range(8))),
    "two producers": in_order(
        *(make_batch(producer=(7 + number % 2, 0, number)) for number in range(14))
    ),
    "a producer and none": in_order(*(make_batch(producer=(7, 0, n)) for n in range(8)), *PLAIN),
    "an epoch that a producer has left": in_order(
        *(make_batch(producer=(7, number // 4, number)) for number in range(8))
    ),
    "more than an index holds": in_order(*(PLAIN * 8)),
    "a batch without a time": in_order(*PLAIN, make_batch(timestamp_ms=-1), *PLAIN),
    "a batch that is too new for the segment": in_order(*PLAIN, make_batch(timestamp_ms=9_000_000)),
}


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
@pytest.mark.parametrize("what", RARE)
def test_what_is_rare_is_taken_as_batch_by_batch(what, config):
    first = in_order(make_batch(timestamp_ms=1000), first=0)
    last = {"a gap": 20}.get(what[:5], 10)
    compare([first, RARE[what], in_order(*PLAIN, first=last)], config)


def several(count=20, *, first=1, epoch=3, payload=b"x"):
    return [
        make_batch(
            base_offset=first + number, epoch=epoch, payload=payload, producer=(7, 0, number)
        )
        for number in range(count)
    ]


@pytest.fixture
def begun(tmp_path):
    """A log with a batch of epoch 3."""
    log = open_log(tmp_path, LogConfig())
    log.follower_appends.append(make_batch(epoch=3))
    yield log
    log.close_without_flush()


def test_good_batches_are_not_looked_at_one_by_one(begun):
    with patch.object(follower_appends, "_follower_batches") as one_by_one:
        assert begun.follower_appends.append(join(*several())).next_offset == 21
    one_by_one.assert_not_called()
    assert [header.base_offset for header in read_all(begun)] == list(range(21))


def test_the_first_batches_of_a_log_and_of_an_epoch_are_a_run_too(tmp_path):
    log = open_log(tmp_path, LogConfig())
    with patch.object(follower_appends, "_follower_batches") as one_by_one:
        log.follower_appends.append(join(*several(first=0)))
        log.follower_appends.append(join(*several(first=20, epoch=5)))
    one_by_one.assert_not_called()
    assert [tuple(each) for each in log.leader_epochs.entries] == [(3, 0), (5, 20)]
    assert [header.base_offset for header in read_all(log)] == list(range(40))
    log.close_without_flush()


def test_first_batches_that_need_several_segments_have_them(tmp_path):
    config = LogConfig(segment_bytes=1500)
    log = open_log(tmp_path, config)
    log.follower_appends.append(join(*several(40, first=0)))
    assert len(log.segments) > 1
    assert all(segment.size <= 1500 for segment in log.segments)
    log.close_without_flush()


def test_a_run_with_one_bad_crc_is_refused_whole(begun):
    data = join(*several())
    data[-1] ^= 1
    before = state_of(begun)
    with pytest.raises(CorruptRecordError, match="batch at offset 20"):
        begun.follower_appends.append(data)
    assert state_of(begun) == before


def test_a_run_of_another_epoch_is_noted_in_the_leader_epochs(begun):
    begun.follower_appends.append(join(*several(epoch=5)))
    assert [tuple(each) for each in begun.leader_epochs.entries] == [(3, 0), (5, 1)]


def test_a_failed_write_of_a_run_leaves_the_log_as_it_was(tmp_path):
    class FailingDisk(RealDisk):
        fails = False

        def __init__(self):
            self.pwrite = self._pwrite

        def _pwrite(self, descriptor, data, position):
            if self.fails:
                raise OSError(5, "Input/output error")
            return RealDisk.pwrite(descriptor, data, position)

    disk = FailingDisk()
    log = open_log(tmp_path, LogConfig(), disk=disk)
    log.follower_appends.append(make_batch(epoch=3))
    before = state_of(log)
    disk.fails = True
    with pytest.raises(LogStorageError):
        log.follower_appends.append(join(*several()))
    disk.fails = False
    assert state_of(log) == before
    assert log.follower_appends.append(join(*several())).next_offset == 21
    log.close_without_flush()


@pytest.mark.parametrize("kept", range(5))
def test_a_follower_killed_between_the_writes_of_a_run_goes_on_with_whole_batches(kept):
    disk = SimulatedDisk(Path("/data"))
    log = open_log(Path("/data"), LogConfig(), disk=disk)
    log.follower_appends.append(make_batch(epoch=3))
    # More than one write call, none of which ends with a batch.
    batches_left = several(12, payload=bytes(50_000))
    disk.crash_after = disk.changes + 1 + kept
    with suppress(CrashError):
        log.follower_appends.append(join(*batches_left))
        disk.exists(Path("/data"))
    disk.kill_process()
    again = open_log(Path("/data"), LogConfig(), disk=disk)
    end_offset = again.log_end_offset
    assert [header.base_offset for header in read_all(again)] == list(range(end_offset))
    rest = batches_left[end_offset - 1 :]
    if rest:
        again.follower_appends.append(join(*rest))
    assert [header.base_offset for header in read_all(again)] == list(range(13))
    again.close_without_flush()
