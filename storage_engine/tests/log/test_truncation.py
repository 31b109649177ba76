"""Logs whose end is cut off: records, epochs and producers."""

import pytest

from storage_engine.core.errors import (
    LogStorageError,
)
from storage_engine.tests.log.support import (
    SavedOffsets,
    append,
    fill,
    offsets_of,
    open_log,
    read_all,
)

# -- truncation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1, 2, 7, 20, 29])
def test_truncation_keeps_exactly_what_is_below(log, keep):
    fill(log, 30)
    headers = read_all(log)
    assert log.truncation.truncate_to(headers[keep].base_offset) == headers[keep].base_offset
    assert read_all(log) == headers[:keep]
    fill(log, 5)
    assert read_all(log)[:keep] == headers[:keep]
    assert offsets_of(read_all(log)) == list(range(log.log_end_offset))


def test_truncation_within_a_batch_drops_that_batch(log):
    append(log, 5)
    append(log, 5)
    assert log.truncation.truncate_to(7) == 5
    assert log.log_end_offset == 5


def test_truncation_beyond_the_end_changes_no_record_but_drops_idle_epochs(log):
    append(log, 5, epoch=1)
    log.leader_appends.start_epoch(3)
    assert log.truncation.truncate_to(5) == 5
    assert log.leader_epochs.entries == ((1, 0),)


def test_truncation_to_the_start_empties_the_log(log):
    fill(log, 10)
    log.truncation.truncate_to(0)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (0, 0, -1)
    append(log)
    assert offsets_of(read_all(log)) == [0]


def test_truncation_drops_the_epochs_and_producers_above(log):
    append(log, 2, epoch=1, producer=(9, 0, 0))
    append(log, 2, epoch=2, producer=(9, 0, 2))
    log.truncation.truncate_to(2)
    assert log.leader_epochs.entries == ((1, 0),)
    assert append(log, 2, epoch=3, producer=(9, 0, 2)).base_offset == 2


def test_truncation_over_several_rolls_restores_the_producers(log):
    for number in range(60):
        append(log, producer=(9, 0, number), payload=bytes(100))
    assert log.segment_count > 3
    log.truncation.truncate_to(10)
    assert append(log, producer=(9, 0, 9), payload=bytes(100)).duplicate
    assert append(log, producer=(9, 0, 10), payload=bytes(100)).base_offset == 10


def test_a_slice_taken_before_a_truncation_says_so_instead_of_giving_other_bytes(log):
    fill(log, 10)
    piece = log.reads.read(log.log_end_offset - 1, max_bytes=1000)
    log.truncation.truncate_to(3)
    with pytest.raises(LogStorageError, match="was truncated"):
        piece.view()


def test_truncation_reports_a_lower_recovery_point(tmp_path):
    lowered = []
    log = open_log(tmp_path, checkpoints=SavedOffsets(lambda: lowered.append(1)))
    fill(log, 10)
    log.flush()
    end = log.log_end_offset
    assert log.recovery_point == end
    log.truncation.truncate_to(5)
    assert log.recovery_point == log.log_end_offset < end
    assert lowered
