"""Crashes that once took what was flushed, or brought back what was cut: found by crash_program."""

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from simulation.world.disk import CrashError, SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.log_config import LogConfig
from storage_engine.tests.log.compaction_support import put
from storage_engine.tests.log.support import (
    append,
    fill,
    loaded_log_manager,
    make_batch,
    offsets_of,
    read_all,
)
from storage_engine.tests.sampling import seeds

ROOT = Path("/data")
TP = TopicPartition("t", 0)
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)


def started(disk: SimulatedDisk, config: LogConfig = SMALL) -> LogManager:
    manager = loaded_log_manager([ROOT], config, disk=disk)
    manager.get_or_create(TP)
    return manager


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(ROOT)


@pytest.fixture
def manager(disk) -> LogManager:
    return started(disk)


def after_power_loss(disk: SimulatedDisk):
    disk.lose_power()
    return started(disk).logs[TP]


def test_segments_that_were_cut_off_do_not_return_after_the_next_flush(disk, manager):
    log = manager.logs[TP]
    fill(log, 20)
    log.flush()
    log.truncation.truncate_to(2)
    append(log, 3, epoch=1, payload=bytes(50))
    log.flush()
    manager.write_recovery_points()
    headers = read_all(log)
    assert read_all(after_power_loss(disk)) == headers


@pytest.mark.parametrize("change", range(1, 30))
def test_a_cut_that_a_crash_interrupts_leaves_no_hole(disk, manager, change):
    log = manager.logs[TP]
    fill(log, 20)
    log.flush()
    manager.write_recovery_points()
    disk.crash_after = disk.changes + change
    try:
        log.truncation.truncate_to(2)
    except CrashError:
        disk.kill_process()
    else:
        disk.lose_power()
    again = started(disk).logs[TP]
    assert offsets_of(read_all(again)) == list(range(again.log_end_offset))


def test_a_segment_that_lost_its_end_is_not_followed_by_others(disk, manager):
    log = manager.logs[TP]
    fill(log, 3)
    log.flush()
    flushed = log.log_end_offset
    fill(log, 20)
    second = log.segments.all[1]
    descriptor = disk.open_existing(second.file.path)
    disk.sync(descriptor)
    directory = disk.open_directory(log.directory)
    disk.sync_names(directory)
    again = after_power_loss(disk)
    assert again.log_end_offset == flushed
    assert offsets_of(read_all(again)) == list(range(flushed))


def test_a_log_that_begins_anew_below_its_start_is_not_dropped_later(disk, manager):
    log = manager.logs[TP]
    fill(log, 20)
    log.retention.advance_log_start(30)
    manager.write_log_starts()
    log.truncation.truncate_fully_and_start_at(5)
    append(log, 3, epoch=1)
    log.flush()
    again = after_power_loss(disk)
    assert (again.log_start_offset, again.log_end_offset) == (5, 8)


def test_a_torn_end_that_recovery_cut_stays_cut_after_a_stop_in_order(disk, manager):
    log = manager.logs[TP]
    fill(log, 3)
    log.flush()
    end = log.log_end_offset
    manager.write_recovery_points()
    torn = bytearray(make_batch(payload=bytes(50), base_offset=end, epoch=0))
    torn[-1] ^= 1
    descriptor = disk.open_existing(log.segments.active.file.path)
    disk.pwrite(descriptor, torn, log.size_in_bytes)
    disk.sync(descriptor)
    disk.lose_power()
    started(disk).close()
    assert after_power_loss(disk).log_end_offset == end


def test_epochs_below_a_log_start_that_was_not_kept_are_learned_again(disk, manager):
    log = manager.logs[TP]
    fill(log, 20)
    log.flush()
    manager.write_recovery_points()
    log.retention.advance_log_start(2)
    append(log)
    log.flush()
    manager.write_recovery_points()
    again = after_power_loss(disk)
    assert again.log_start_offset == 0
    assert again.leader_epochs.epoch_at(0) == 0


def test_the_indexes_of_a_segment_sealed_at_the_recovery_point_are_not_trusted(disk, manager):
    log = manager.logs[TP]
    while log.segment_count < 2:
        log.flush()
        manager.write_recovery_points()
        append(log, payload=bytes(100), timestamp_ms=5000 - log.log_end_offset)
    directory = disk.open_directory(log.directory)
    disk.sync_names(directory)
    again = after_power_loss(disk)
    assert again.segments.first.largest_timestamp() == 5000
    assert len(again.segments.first.offset_index) > 0


def test_a_stop_in_order_leaves_the_indexes_on_the_medium(disk, manager):
    log = manager.logs[TP]
    append(log, payload=bytes(100))
    append(log, payload=bytes(100))
    append(log, payload=bytes(100))
    log.flush()
    manager.close()
    again = after_power_loss(disk)
    assert again.recovered_bytes == 0
    assert len(again.segments.active.offset_index) > 0


def sync_file(disk: SimulatedDisk, path: Path) -> None:
    descriptor = disk.open_existing(path)
    disk.sync(descriptor)
    disk.close(descriptor)


def test_a_segment_that_was_cut_off_is_not_taken_for_the_continuation(disk, manager):
    """Where the new records end, an old segment begins whose name came back."""
    log = manager.logs[TP]
    fill(log, 20, epoch=1)
    log.flush()
    old = log.segments.all[1].base_offset
    cut = log.truncation.truncate_to(old - 1)
    append(log, old - cut, epoch=2)
    sync_file(disk, log.segments.active.file.path)
    again = after_power_loss(disk)
    assert again.log_end_offset == old
    assert [header.partition_leader_epoch for header in read_all(again)][-1] == 2


def test_a_segment_that_recovery_dropped_does_not_come_back(disk, manager):
    log = manager.logs[TP]
    fill(log, 20)
    log.flush()
    first = log.segments.first
    disk.pwrite(disk.open_existing(first.file.path), b"\xff", first.size - 1)
    disk.kill_process()
    again = started(disk).logs[TP]
    end = again.log_end_offset
    assert again.segment_count == 1 and end < 20
    disk.lose_power()
    names = disk.list_names(again.directory)
    assert sorted(name for name in names if name.endswith(".log")) == [first.file.path.name]


def test_a_snapshot_of_records_that_were_cut_off_is_not_believed(disk, manager):
    log = manager.logs[TP]
    append(log, 2)
    append(log, 5, producer=(7, 0, 0))
    manager.close()
    (snapshot,) = [name for name in disk.list_names(log.directory) if name.endswith(".snapshot")]
    sync_file(disk, log.directory / snapshot)
    manager = started(disk)
    log = manager.logs[TP]
    log.truncation.truncate_to(2)
    append(log, 9, epoch=1)
    sync_file(disk, log.segments.active.file.path)
    again = after_power_loss(disk)
    assert again.log_end_offset == 11
    assert again.producer_state.get(7) is None


@pytest.mark.parametrize("seed", seeds(30))
def test_the_oldest_segments_go_only_when_the_newest_has_its_name(disk, manager, seed):
    log = manager.logs[TP]
    fill(log, 10)
    log.flush()
    manager.write_recovery_points()
    flushed, count = log.log_end_offset, log.segment_count
    while log.segment_count == count:
        append(log, payload=bytes(100))
    log.retention.advance_log_start(log.segments.active.base_offset)
    disk.lose_power(random.Random(seed))
    assert started(disk).logs[TP].log_end_offset >= flushed


@pytest.mark.parametrize("seed", seeds(30))
def test_a_segment_gets_its_name_only_when_those_before_have_theirs(disk, manager, seed):
    log = manager.logs[TP]
    while log.segment_count < 4:
        append(log, payload=bytes(100))
    disk.lose_power(random.Random(seed))
    logs = started(disk).logs
    assert TP not in logs or logs[TP].log_start_offset == 0


@pytest.mark.parametrize("change", range(1, 20))
def test_a_log_that_is_emptied_at_its_start_does_not_go_back_behind_it(change):
    """A start that no checkpoint had, and no segment that the crash left."""
    for seed in range(6):
        disk = SimulatedDisk(ROOT)
        log = started(disk).logs[TP]
        fill(log, 10)
        log.flush()
        flushed, count = log.log_end_offset, log.segment_count
        while log.segment_count == count:
            append(log, payload=bytes(100))
        log.retention.advance_log_start(log.segments.active.base_offset)
        disk.crash_after = disk.changes + change
        with suppress(CrashError):
            log.truncation.truncate_to(log.log_start_offset)
        disk.lose_power(random.Random(seed))
        assert started(disk).logs[TP].log_end_offset >= flushed


@pytest.mark.parametrize("change", range(1, 30))
def test_a_compacted_log_that_begins_anew_further_on_keeps_no_old_segment_before_it(change):
    """Gaps are in order there, so that nothing would tell the hole."""
    compacted = replace(SMALL, cleanup_policy="compact")
    for seed in range(8):
        disk = SimulatedDisk(ROOT)
        log = started(disk, compacted).logs[TP]
        while log.segment_count < 4:
            put(log, [(b"k%d" % log.log_end_offset, bytes(60))])
        log.flush()
        disk.crash_after = disk.changes + change
        with suppress(CrashError):
            log.truncation.truncate_fully_and_start_at(100)
        disk.lose_power(random.Random(seed))
        again = started(disk, compacted).logs[TP]
        begin = again.segments.first.base_offset
        assert offsets_of(read_all(again)) == list(range(begin, again.log_end_offset))
