"""A full disk is refused before it is met, and nothing is lost by it (R-LOG8)."""

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.core.errors import LogDirError, LogFullError
from storage_engine.log.files.disk import ALLOWANCE_BYTES, FreeSpace
from storage_engine.log.log_config import LogConfig
from storage_engine.tests.log.support import append, fill, make_batch, open_log, read_all

RESERVE = 1000


@pytest.fixture
def disk(tmp_path) -> SimulatedDisk:
    return SimulatedDisk(tmp_path)


@pytest.fixture
def space(tmp_path, disk) -> FreeSpace:
    return FreeSpace(disk, tmp_path, reserve_bytes=RESERVE)


def test_an_append_that_would_reach_into_the_reserve_is_refused(tmp_path, disk, space):
    disk.free[tmp_path] = RESERVE + 100
    space.take(100)
    disk.free[tmp_path] = RESERVE + 99
    with pytest.raises(LogFullError, match="no room for 100 bytes in the log dir"):
        space.take(100)


def test_there_is_room_again_as_soon_as_the_file_system_says_so(tmp_path, disk, space):
    disk.free[tmp_path] = 0
    with pytest.raises(LogFullError):
        space.take(1)
    assert space.is_full
    disk.free[tmp_path] = RESERVE + 1
    space.take(1)
    assert not space.is_full


def test_the_file_system_is_asked_once_for_many_appends(tmp_path, disk, space):
    disk.free[tmp_path] = RESERVE + 2 * ALLOWANCE_BYTES
    space.take(1)
    disk.free[tmp_path] = 0
    space.take(ALLOWANCE_BYTES - 1)
    with pytest.raises(LogFullError):
        space.take(1)


def test_what_others_wrote_counts_after_the_next_look(tmp_path, disk, space):
    disk.free[tmp_path] = RESERVE + 500
    space.take(1)
    disk.free[tmp_path] = RESERVE
    space.refresh()
    with pytest.raises(LogFullError):
        space.take(1)


def test_without_a_reserve_nobody_asks(tmp_path, disk):
    disk.broken.add(tmp_path)
    FreeSpace(disk, tmp_path).take(1 << 40)


def test_a_file_system_that_fails_when_asked_is_a_failed_log_dir(tmp_path, disk, space):
    disk.broken.add(tmp_path)
    with pytest.raises(LogDirError, match="free space"):
        space.take(1)


def test_a_refused_append_leaves_the_log_as_it_was(tmp_path, disk, space):
    log = open_log(tmp_path, LogConfig(), disk=disk, room=space)
    fill(log, 5)
    headers, end = read_all(log), log.log_end_offset
    disk.free[tmp_path] = 0
    space.refresh()
    with pytest.raises(LogFullError):
        append(log, producer=(9, 0, 0))
    with pytest.raises(LogFullError):
        log.follower_appends.append(make_batch(base_offset=end, epoch=7))
    assert read_all(log) == headers
    assert log.latest_epoch == 0
    assert log.producer_state.get(9) is None
    del disk.free[tmp_path]
    assert append(log, producer=(9, 0, 0)).base_offset == end


def test_an_epoch_is_written_before_a_flush_counts(tmp_path, disk):
    log = open_log(tmp_path, LogConfig(), disk=disk)
    fill(log, 2)
    log.flush()
    append(log, epoch=5)
    disk.room[tmp_path] = 0
    with pytest.raises(LogFullError):
        log.flush()
    assert log.recovery_point < log.log_end_offset
    disk.room.clear()
    log.flush()
    log.close_without_flush()
    recovery_point = log.log_end_offset
    again = open_log(tmp_path, LogConfig(), disk=disk, recovery_point=recovery_point, clean=True)
    assert again.latest_epoch == 5


def test_retention_makes_room_on_a_disk_without_any(tmp_path, disk):
    config = LogConfig(segment_bytes=300, retention_ms=1, file_delete_delay_ms=0)
    log = open_log(tmp_path, config, disk=disk)
    for epoch in range(10):
        fill(log, 3, epoch=epoch)
    disk.room[tmp_path] = 0
    assert log.retention.delete_old_segments(
        10_000_000, log.segment_count and log.segments.active.base_offset
    )
    assert log.log_start_offset > 0
