"""Offsets by time: R-LOG11, KIP-79."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.time_search import TimeSearch
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.log.compaction_support import CONFIG, compact, put
from storage_engine.tests.log.support import SMALL, append, open_log, run_search


def append_times(log, *times_ms: int, compression: str = "none", epoch: int = 0) -> None:
    """One batch with a record for each time."""
    values = pa.array([b"v"] * len(times_ms))
    (batch,) = encode_batches(
        values, timestamps_ms=pa.array(times_ms, pa.int64()), compression=compression
    )
    log.leader_appends.append(memoryview(bytearray(batch.data)), leader_epoch=epoch, now_ms=0)


def test_the_first_record_at_or_after_a_time_is_found_within_a_batch(tmp_path):
    log = open_log(tmp_path)
    append_times(log, 10, 20, 20, 30, epoch=2)
    assert run_search(log.reads.search_timestamp(0)) == (0, 10, 2)
    assert run_search(log.reads.search_timestamp(20)) == (1, 20, 2)
    assert run_search(log.reads.search_timestamp(21)) == (3, 30, 2)
    assert run_search(log.reads.search_timestamp(31)) is None


class Counted(Sequence):
    """Segments, and how often anybody has looked at one."""

    def __init__(self, segments) -> None:
        self.segments = segments
        self.looks = 0

    def __len__(self) -> int:
        return len(self.segments)

    def __getitem__(self, number):
        self.looks += 1
        return self.segments[number]


@pytest.mark.parametrize("largest", [False, True], ids=["by time", "largest time"])
def test_each_segment_of_a_long_log_costs_the_same(tmp_path, largest):
    looks = {}
    for count in (64, 256):
        log = open_log(tmp_path / str(count), SMALL)
        for segment in range(count):
            if segment:
                log.roll(log.log_end_offset)
            append_times(log, segment)
        segments = Counted(log.segments.all)
        assert len(segments) == count
        search, end = TimeSearch(lambda segments=segments: segments), log.log_end_offset
        found = run_search(
            search.of_largest_timestamp(0, end) if largest else search.by_timestamp(count, 0, end)
        )
        assert found == ((count - 1, count - 1, 0) if largest else None)
        looks[count] = segments.looks
        log.close()
    # Four times as many, each with two more steps to find it.
    assert looks[256] <= 6 * looks[64], looks


def test_compressed_batches_are_searched_too(tmp_path):
    log = open_log(tmp_path)
    append_times(log, 10, 20, 30, compression="zstd")
    assert run_search(log.reads.search_timestamp(15)) == (1, 20, 0)


def test_an_earlier_record_of_a_batch_that_is_out_of_order_wins(tmp_path):
    log = open_log(tmp_path)
    append_times(log, 50, 10)
    append_times(log, 40)
    assert run_search(log.reads.search_timestamp(40)) == (0, 50, 0)


def test_records_at_or_beyond_the_bound_are_not_found(tmp_path):
    log = open_log(tmp_path)
    append_times(log, 10, 20)
    append_times(log, 30)
    assert run_search(log.reads.search_timestamp(20, max_offset=1)) is None
    assert run_search(log.reads.search_timestamp(30, max_offset=2)) is None
    assert run_search(log.reads.search_timestamp(20, max_offset=2)) == (1, 20, 0)


def test_records_below_the_log_start_are_not_found(tmp_path):
    log = open_log(tmp_path)
    append_times(log, 10, 20, 30)
    log.retention.advance_log_start(2)
    assert run_search(log.reads.search_timestamp(0)) == (2, 30, 0)


def test_with_append_time_every_record_of_a_batch_has_its_time(tmp_path):
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    append(log, 3, now_ms=100)
    append(log, 3, now_ms=200)
    assert run_search(log.reads.search_timestamp(150)) == (3, 200, 0)


def test_with_append_time_a_record_that_compaction_took_is_not_found(tmp_path):
    log = open_log(tmp_path, replace(CONFIG, message_timestamp_type="LogAppendTime"))
    put(log, [(b"a", b"old"), (b"b", b"stays"), (b"c", b"stays")], now_ms=5000)
    while log.segment_count < 2:
        put(log, [(b"a", bytes(100))], now_ms=4000)
    assert compact(log)
    assert run_search(log.reads.search_timestamp(5000)) == (1, 5000, 0)
    assert run_search(log.reads.search_largest_timestamp()) == (1, 5000, 0)
    log.retention.advance_log_start(2)
    assert run_search(log.reads.search_timestamp(5000)) == (2, 5000, 0)


def test_records_without_a_time_have_no_largest_one(tmp_path):
    log = open_log(tmp_path)
    append_times(log, -1, -1)
    assert run_search(log.reads.search_largest_timestamp()) is None
    log.retention.advance_log_start(1)
    assert run_search(log.reads.search_largest_timestamp()) is None


def test_nothing_is_found_where_no_records_are(tmp_path):
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    append_times(log, 10, 20, 30)
    log.retention.advance_log_start(1)
    assert run_search(log.reads.search_largest_timestamp(max_offset=1)) is None
    assert run_search(log.reads.search_timestamp(0, max_offset=1)) is None


def test_a_batch_that_cannot_be_decoded_answers_as_a_whole(tmp_path):
    log = open_log(tmp_path)
    append(log, 3, payload=b"no records", timestamp_ms=100)
    assert run_search(log.reads.search_timestamp(50)) == (0, 100, 0)


def test_the_largest_timestamp_is_found_with_the_first_record_that_has_it(tmp_path):
    log = open_log(tmp_path)
    assert run_search(log.reads.search_largest_timestamp()) is None
    append_times(log, 10, 90, 20)
    append_times(log, 90)
    append_times(log, 95)
    assert run_search(log.reads.search_largest_timestamp()) == (4, 95, 0)
    assert run_search(log.reads.search_largest_timestamp(max_offset=4)) == (1, 90, 0)


@pytest.mark.parametrize("reopened", ["no", "clean", "unclean"])
@settings(max_examples=25, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=25),
)
def test_every_answer_equals_that_of_a_plain_search(tmp_path_factory, reopened, batches):
    path = tmp_path_factory.mktemp("time")
    log = open_log(path, SMALL)
    for times_ms in batches:
        append_times(log, *times_ms)
    if reopened != "no":
        log.close()
        clean = reopened == "clean"
        log = open_log(path, SMALL, clean=clean, recovery_point=999 if clean else 0)
    flat = [time_ms for times_ms in batches for time_ms in times_ms]
    for wanted_ms in range(0, 62, 3):
        expected = next(
            ((offset, time, 0) for offset, time in enumerate(flat) if time >= wanted_ms), None
        )
        assert run_search(log.reads.search_timestamp(wanted_ms)) == expected
    assert run_search(log.reads.search_largest_timestamp()) == (flat.index(max(flat)), max(flat), 0)
    log.close_without_flush()
