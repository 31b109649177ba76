"""The checkpoint files of open logs: what they keep over a stop. R-LOG8, R-LOG10, R-REP10."""

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.log.files.disk import REAL_DISK
from storage_engine.log.state.checkpoints import read_offsets
from storage_engine.tests.log.dirs.managers import A0, A1, B0, open_manager
from storage_engine.tests.log.support import (
    fill,
)


def test_a_checkpoint_for_which_there_is_no_room_fails_nothing(tmp_path, caplog):
    disk = SimulatedDisk(tmp_path)
    manager = open_manager(tmp_path / "a", disk=disk)
    fill(manager.get_or_create(A0), 30)
    manager.dirs.on_failed = lambda path, error: pytest.fail("a full log dir has not failed")
    disk.room[tmp_path / "a"] = 0
    manager.write_recovery_points()
    assert "checkpoint not written" in caplog.text
    disk.room.clear()
    manager.close()


def test_high_watermarks_survive_and_never_exceed_the_log(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    fill(manager.get_or_create(A1), 30)
    end = manager.logs[A0].log_end_offset
    manager.checkpoint_high_watermarks({A0: 7, A1: end + 100, B0: 3})
    manager.close()
    again = open_manager(tmp_path)
    assert again.high_watermark(A0) == 7
    assert again.high_watermark(A1) == end
    assert again.high_watermark(B0) == 0


def test_the_log_start_survives(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    manager.logs[A0].retention.advance_log_start(9)
    manager.close()
    assert open_manager(tmp_path).logs[A0].log_start_offset == 9


def test_truncation_below_the_recovery_point_is_on_disk_before_the_next_append(tmp_path):
    manager = open_manager(tmp_path)
    log = manager.get_or_create(A0)
    fill(log, 60)
    log.flush()
    manager.write_recovery_points()
    log.truncation.truncate_to(10)
    checkpoint = read_offsets(REAL_DISK, tmp_path / "recovery-point-offset-checkpoint")
    assert checkpoint.offsets == {A0: log.log_end_offset}


def test_where_a_log_is_clean_is_kept_but_not_for_a_partition_made_anew(tmp_path):
    manager = open_manager(tmp_path)
    fill(manager.get_or_create(A0), 30)
    manager.logs[A0].cleaning.first_dirty_offset = 7
    manager.close()
    again = open_manager(tmp_path)
    assert again.logs[A0].cleaning.first_dirty_offset == 7
    path = tmp_path / "cleaner-offset-checkpoint"
    assert read_offsets(REAL_DISK, path).offsets == {A0: 7}
    again.logs[A0].truncation.truncate_to(4)
    assert read_offsets(REAL_DISK, path).offsets[A0] in (3, 4)
    again.delete(A0)
    fill(again.get_or_create(A0), 5)
    again.abandon()
    anew = open_manager(tmp_path)
    assert anew.logs[A0].cleaning.first_dirty_offset == 0
    anew.close()
