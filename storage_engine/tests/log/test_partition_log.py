"""A log as a whole: new, closed, and with a start that has advanced. R-LOG1, R-LOG9."""

import pytest

from storage_engine.core.errors import (
    LogStorageError,
    OffsetOutOfRangeError,
)
from storage_engine.tests.log.support import (
    append,
    fill,
    offsets_of,
    read_all,
)


def test_a_new_log_is_empty(log):
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (0, 0, -1)
    assert log.reads.read(0, max_bytes=100) is None


def test_a_closed_log_takes_nothing(log):
    log.close()
    with pytest.raises(LogStorageError, match="is closed"):
        append(log)


def test_advancing_the_log_start_hides_records_and_drops_whole_segments(tmp_path, log):
    fill(log, 60)
    before = log.segment_count
    assert log.retention.advance_log_start(70)
    assert not log.retention.advance_log_start(70)
    assert log.log_start_offset == 70
    assert log.segment_count < before
    with pytest.raises(OffsetOutOfRangeError, match=r"\[70,"):
        log.reads.read(69, max_bytes=100)
    assert 70 in offsets_of(read_all(log, 70)[:1])
    with pytest.raises(OffsetOutOfRangeError):
        log.retention.advance_log_start(log.log_end_offset + 1)


def test_readers_of_deleted_segments_go_on(log):
    fill(log, 40)
    piece = log.reads.read(0, max_bytes=1000)
    expected = piece.read_bytes()
    log.retention.advance_log_start(log.log_end_offset)
    assert piece.view() == expected
