"""The list of a log's segments: which one has an offset, and when the files of deleted ones go."""

from dataclasses import replace

from storage_engine.tests.log.support import SMALL, ManualClock, append, fill, open_log


def test_each_offset_is_in_the_last_segment_that_begins_at_or_below_it(log):
    fill(log, 60)
    log.retention.advance_log_start(40)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 2
    for offset in range(bases[0], log.log_end_offset):
        number = log.segments.number_of(offset)
        assert bases[number] == max(base for base in bases if base <= offset)
    assert log.segments.number_of(bases[0] - 1) == 0
    assert log.segments.number_of(log.log_end_offset + 9) == len(bases) - 1


def test_a_reader_keeps_the_segments_that_it_has_looked_up(log):
    fill(log, 60)
    seen = log.segments.all
    before = list(seen)
    log.truncation.truncate_to(20)
    fill(log, 60)
    log.retention.advance_log_start(log.log_end_offset)
    assert list(seen) == before
    assert log.segments.all != seen


def test_files_of_deleted_segments_wait_each_for_its_own_delay(tmp_path):
    clock = ManualClock(0)
    log = open_log(tmp_path, replace(SMALL, file_delete_delay_ms=100), clock=clock)
    fill(log, 30)
    log.retention.advance_log_start(log.segments.active.base_offset)
    clock.now_ms = 60
    log.truncation.truncate_to(log.log_start_offset)
    append(log)
    log.truncation.truncate_fully_and_start_at(500)
    assert log.segments.take_deleted_files(99) == []
    first = log.segments.take_deleted_files(100)
    assert log.segments.has_deleted_files
    last = log.segments.take_deleted_files(160)
    assert first and last and sorted(first + last) == sorted(log.directory.glob("*.deleted"))
    assert not log.segments.has_deleted_files
