"""Which producers may be missing from what a log knows, over all that cuts or reopens it
(R-CLI7).
"""

import pytest

from storage_engine.core.errors import OutOfOrderSequenceError
from storage_engine.core.retained.producer_state import ANY_FORGOTTEN, NONE_FORGOTTEN
from storage_engine.log.log_config import LogConfig
from storage_engine.tests.log.support import append, join, make_batch, open_log

CONFIG = LogConfig(
    segment_bytes=2000,
    index_interval_bytes=200,
    file_delete_delay_ms=0,
    producer_id_expiration_ms=1000,
)


def long_lived(path):
    """A log of 40 batches, whose producer 9 has expired and whose producer 4 has not."""
    log = open_log(path, CONFIG)
    append(log, producer=(9, 0, 0), now_ms=1000)
    for number in range(39):
        append(log, producer=(4, 0, number), payload=bytes(100), now_ms=5000)
    assert log.expire_producers(5000) == 1
    return log


def assert_strict_above_9(log):
    with pytest.raises(OutOfOrderSequenceError):
        append(log, producer=(10, 0, 1))
    assert append(log, producer=(9, 0, 1)).base_offset >= 0, "it may have been here"
    assert append(log, producer=(10, 0, 0)).base_offset >= 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_is_opened_again_is_as_strict_as_before(tmp_path, clean):
    log = long_lived(tmp_path)
    log.close()
    again = open_log(
        tmp_path, CONFIG, clean=clean, recovery_point=log.log_end_offset, log_start_offset=0
    )
    assert again.producer_state.forgotten_to == 9
    assert_strict_above_9(again)


@pytest.mark.parametrize("snapshots_stay", [True, False])
def test_truncation_makes_a_log_no_laxer(tmp_path, snapshots_stay):
    log = long_lived(tmp_path)
    log.retention.advance_log_start(15)
    if not snapshots_stay:
        log.snapshots.remove_all()
    log.truncation.truncate_to(38)
    assert log.producer_state.forgotten_to <= 9
    with pytest.raises(OutOfOrderSequenceError):
        append(log, producer=(10, 0, 1))


def test_deleted_records_take_no_producer_with_them(tmp_path):
    log = long_lived(tmp_path)
    log.retention.advance_log_start(log.log_end_offset)
    assert log.producer_state.forgotten_to == 9
    assert append(log, producer=(4, 0, 39)).base_offset == 40
    assert_strict_above_9(log)


def test_a_replica_of_a_log_that_begins_later_knows_of_nobody(tmp_path):
    follower = open_log(tmp_path, CONFIG)
    assert follower.producer_state.forgotten_to == NONE_FORGOTTEN
    follower.truncation.truncate_fully_and_start_at(100)
    assert follower.producer_state.forgotten_to == ANY_FORGOTTEN
    assert append(follower, producer=(1 << 40, 0, 7)).base_offset == 100


def test_a_refused_append_of_junk_changes_nothing(tmp_path):
    log = open_log(tmp_path, CONFIG)
    for data in (b"", bytes(20), bytes(200)):
        log.leader_appends.note_refused(memoryview(data))
    log.leader_appends.note_refused(make_batch())
    assert append(log, producer=(9, 0, 0)).base_offset == 0


def test_of_a_refused_append_the_first_batch_counts(tmp_path):
    log = open_log(tmp_path, CONFIG)
    log.truncation.truncate_fully_and_start_at(100)
    both = join(make_batch(producer=(9, 0, 3)), make_batch(producer=(9, 0, 4)))
    log.leader_appends.note_refused(both)
    with pytest.raises(OutOfOrderSequenceError):
        append(log, producer=(9, 0, 4))
    assert log.leader_appends.append(both, leader_epoch=0, now_ms=1).base_offset == 100
