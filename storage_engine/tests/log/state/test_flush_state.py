"""Flushes, and the recovery point by which a log says what is on the medium: R-LOG4, R-LOG8."""

from pathlib import Path

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.core.errors import LogStorageError
from storage_engine.log.files.disk import RealDisk
from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.segment_list import SEGMENTS_PER_FLUSH
from storage_engine.tests.log.support import ManualClock, append, fill, open_log


class WatchedDisk(RealDisk):
    """Remembers what was synced; fails on demand."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.synced: set[str] = set()
        self.failing = False

    def open_existing(self, path):
        descriptor = super().open_existing(path)
        self.names[descriptor] = path.name
        return descriptor

    def open_directory(self, path):
        descriptor = super().open_directory(path)
        self.names[descriptor] = path.name
        return descriptor

    def sync(self, descriptor):
        if self.failing:
            raise OSError(5, "Input/output error")
        self.synced.add(self.names.get(descriptor, "?"))
        super().sync(descriptor)

    def sync_names(self, descriptor):
        self.synced.add(self.names.get(descriptor, "?"))
        super().sync_names(descriptor)


def test_a_flush_moves_the_recovery_point_to_the_end(tmp_path):
    log = open_log(tmp_path)
    fill(log, 30)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == log.log_end_offset


def test_a_flush_syncs_all_that_recovery_will_trust(tmp_path):
    disk = WatchedDisk()
    log = open_log(tmp_path, disk=disk)
    fill(log, 60)
    log.flush()
    sealed = [f"{segment.base_offset:020d}" for segment in log.segments.all[:-1]]
    active = f"{log.segments.active.base_offset:020d}"
    assert len(sealed) > 1
    suffixes = (".log", ".index", ".timeindex")
    expected = {stem + suffix for stem in sealed for suffix in suffixes}
    expected |= {active + ".log", "leader-epoch-checkpoint", "topic-0", tmp_path.name}
    assert disk.synced == expected
    disk.synced.clear()
    append(log)
    log.flush()
    assert disk.synced == {active + ".log"}
    disk.synced.clear()
    append(log, epoch=1)
    log.flush()
    assert disk.synced == {active + ".log", "leader-epoch-checkpoint", "topic-0"}


def test_finished_segments_ask_for_a_flush(tmp_path):
    log = open_log(tmp_path)
    append(log)
    assert not log.flush_state.is_due(0)
    fill(log, 30)
    assert log.segment_count > 1
    assert log.flush_state.is_due(0)
    log.flush()
    assert not log.flush_state.is_due(0)


def test_flush_messages_bounds_what_is_not_flushed(tmp_path):
    log = open_log(tmp_path, LogConfig(flush_messages=5))
    append(log, 4)
    assert not log.flush_state.is_due(0)
    append(log)
    assert log.flush_state.is_due(0)


def test_flush_ms_bounds_how_long_it_is_not_flushed(tmp_path):
    clock = ManualClock(1000)
    log = open_log(tmp_path, LogConfig(flush_ms=500), clock=clock)
    append(log)
    assert not log.flush_state.is_due(1499)
    assert log.flush_state.is_due(1500)
    log.flush()
    assert not log.flush_state.is_due(9999)


def test_a_wall_clock_that_is_set_changes_no_time_between_flushes(tmp_path):
    clock = ManualClock(1000)
    clock.wall_ms = lambda: 10**12  # type: ignore[method-assign]
    log = open_log(tmp_path, LogConfig(flush_ms=500), clock=clock)
    append(log)
    assert not log.flush_state.is_due(1499)
    assert log.flush_state.is_due(1500)


def test_a_job_counts_for_what_was_there_when_it_was_asked_for(tmp_path):
    log = open_log(tmp_path)
    fill(log, 30)
    end = log.log_end_offset
    job = log.flush_state.prepare()
    fill(log, 30)
    job.run()
    job.finish()
    assert log.recovery_point == job.end_offset == end


def test_a_job_that_a_truncation_overtook_counts_for_nothing(tmp_path):
    log = open_log(tmp_path)
    fill(log, 30)
    job = log.flush_state.prepare()
    log.truncation.truncate_to(4)
    fill(log, 30)
    job.run()
    job.finish()
    assert log.recovery_point == 0


def test_a_job_runs_to_its_end_although_the_log_was_deleted(tmp_path):
    log = open_log(tmp_path)
    fill(log, 30)
    job = log.flush_state.prepare()
    log.delete()
    assert not log.directory.exists()
    job.run()


def test_a_failed_flush_moves_nothing(tmp_path):
    disk = WatchedDisk()
    log = open_log(tmp_path, disk=disk)
    append(log)
    disk.failing = True
    with pytest.raises(LogStorageError, match="can't flush"):
        log.flush()
    assert log.recovery_point == 0
    disk.failing = False
    log.flush()
    assert {"topic-0", tmp_path.name} <= disk.synced


def test_closing_a_log_that_was_not_touched_syncs_nothing(tmp_path):
    log = open_log(tmp_path)
    fill(log, 30)
    log.close()
    disk = WatchedDisk()
    again = open_log(tmp_path, disk=disk, clean=True, recovery_point=log.log_end_offset)
    again.close()
    assert disk.synced == set()


def test_many_unflushed_segments_take_several_jobs(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=200, index_interval_bytes=0))
    fill(log, 2 * SEGMENTS_PER_FLUSH + 5)
    job = log.flush_state.prepare()
    job.run()
    job.finish()
    assert 0 < log.recovery_point == job.end_offset < log.log_end_offset
    assert log.flush_state.is_due(0)
    log.flush()
    assert log.recovery_point == log.log_end_offset
    log.close()


def test_closing_after_a_truncation_brings_the_cut_to_the_medium(tmp_path):
    disk = WatchedDisk()
    log = open_log(tmp_path, disk=disk)
    fill(log, 5)
    log.flush()
    log.truncation.truncate_to(3)
    disk.synced.clear()
    log.close()
    assert f"{0:020d}.log" in disk.synced
    disk.synced.clear()
    log.close()
    assert disk.synced == set()


@pytest.mark.parametrize("segment_bytes", [2000, 200_000])
def test_a_flush_that_overtakes_another_one_claims_no_more_than_it_synced(segment_bytes):
    """Two are under way when a flush before acknowledgements meets the periodic one: the first took
    the new names and the epochs along, the second must not rely on it."""
    root = Path("/disk")
    disk = SimulatedDisk(root)
    log = open_log(root, LogConfig(segment_bytes=segment_bytes), disk=disk)
    fill(log, 1)
    log.flush()
    fill(log, 20, epoch=1)
    slow = log.flush_state.prepare()
    count = log.segment_count
    fill(log, 3, epoch=1)
    assert log.segment_count == count
    quick = log.flush_state.prepare()
    quick.run()
    quick.finish()
    claimed = log.recovery_point
    assert claimed == log.log_end_offset
    disk.lose_power()
    log = open_log(root, disk=disk, recovery_point=claimed)
    assert log.log_end_offset == claimed
    assert log.latest_epoch == 1
    slow.finish()
