"""When a segment ends and the next begins: R-LOG2."""

import pytest

from storage_engine.log.log_config import LogConfig
from storage_engine.tests.log.support import (
    ManualClock,
    append,
    fill,
    offsets_of,
    open_log,
    read_all,
    segment_files,
)


def test_no_segment_is_larger_than_segment_bytes(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=1000))
    fill(log, 50)
    assert all(path.stat().st_size <= 1000 for path in segment_files(tmp_path))


def test_a_full_index_ends_a_segment(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_index_bytes=36, index_interval_bytes=0))
    fill(log, 20)
    assert log.segment_count > 3
    assert offsets_of(read_all(log)) == list(range(log.log_end_offset))


def test_the_age_of_a_segment_counts_in_record_time(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_ms=1000))
    append(log, timestamp_ms=5000)
    append(log, timestamp_ms=6000)
    assert log.segment_count == 1
    append(log, timestamp_ms=6001)
    assert log.segment_count == 2


def test_records_without_time_roll_by_our_clock(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_ms=1000), clock=ManualClock(10_000))
    append(log, timestamp_ms=-1, now_ms=10_500)
    append(log, timestamp_ms=-1, now_ms=11_000)
    assert log.segment_count == 1
    append(log, timestamp_ms=-1, now_ms=11_001)
    assert log.segment_count == 2


def test_jitter_makes_segments_end_earlier_but_never_later(tmp_path):
    ages = set()
    for number in range(20):
        log = open_log(tmp_path / str(number), LogConfig(segment_ms=1000, segment_jitter_ms=500))
        append(log, timestamp_ms=0)
        age = next(
            age
            for age in range(0, 1200, 20)
            if (append(log, timestamp_ms=age), log.segment_count)[1] == 2
        )
        ages.add(age)
        log.close()
    assert len(ages) > 5
    assert 500 <= min(ages) <= max(ages) <= 1020


def test_a_failed_roll_leaves_the_log_as_it_was(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=200))
    append(log, payload=bytes(100))
    next_file = tmp_path / "topic-0" / f"{1:020d}.log"
    next_file.mkdir()
    with pytest.raises(Exception, match="can't roll"):
        append(log, payload=bytes(100))
    next_file.rmdir()
    assert log.log_end_offset == 1
    append(log, payload=bytes(100))
    assert offsets_of(read_all(log)) == [0, 1]
