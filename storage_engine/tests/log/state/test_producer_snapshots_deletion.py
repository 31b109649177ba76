"""The producers of a log outlive the deletion of what they wrote, also when the process dies."""

import errno
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from simulation.world.disk import CrashError, SimulatedDisk
from storage_engine.core.errors import LogDirError
from storage_engine.core.retained.producer_state import (
    ANY_FORGOTTEN,
    ProducerStates,
    SequencedBatch,
)
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.files.disk import REAL_DISK, Disk, sync_names
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.state.producer_snapshots import ProducerSnapshots
from storage_engine.tests.log.support import TP, append, loaded_log_manager

BATCHES = 200


def opened(folder: Path, disk: Disk = REAL_DISK) -> tuple[LogManager, PartitionLog]:
    manager = loaded_log_manager([folder], disk=disk)
    return manager, manager.get_or_create(TP)


def last_sequence(log: PartitionLog) -> int:
    """Return that of producer 7, whose sequences are the offsets."""
    entry = log.producer_state.get(7)
    return -1 if entry is None else entry.batches[-1].last_sequence


def prepared(tmp_path: Path, kept: str) -> tuple[SimulatedDisk, Path, LogManager, PartitionLog]:
    """A log whose batches are all of producer 7; `kept`: what of them is on the medium."""
    disk, folder = SimulatedDisk(tmp_path), tmp_path / "logs"
    disk.make_directory(folder)
    manager, log = opened(folder, disk)
    for number in range(BATCHES):
        append(log, producer=(7, 0, number))
    log.roll_at_end()
    append(log, producer=(7, 0, BATCHES))
    if kept != "nothing":
        log.flush()
    if kept == "all, and the recovery point":
        manager.write_recovery_points()
    return disk, folder, manager, log


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_producer_goes_on_after_its_records_were_deleted_and_the_process_was_killed(
    tmp_path, restarts
):
    """Nothing was flushed. After a restart the snapshots above the recovery point are gone."""
    folder = tmp_path / "logs"
    manager, log = opened(folder)
    for number in range(BATCHES):
        append(log, producer=(7, 0, number))
    log.roll_at_end()
    append(log, producer=(8, 0, 0))
    for number in range(restarts):
        copy = tmp_path / f"killed {number}"
        shutil.copytree(folder, copy)
        folder = copy
        manager, log = opened(folder)
    assert len(log.segments) > 4
    log.retention.advance_log_start(BATCHES)
    assert len(log.segments) == 1
    assert not manager.write_log_starts()
    shutil.copytree(folder, tmp_path / "again")

    _, again = opened(tmp_path / "again")

    assert again.log_start_offset == BATCHES
    assert sorted(again.producer_state.ids()) == [7, 8]
    repeated = append(again, producer=(7, 0, BATCHES - 1))
    assert repeated.duplicate
    assert not append(again, producer=(7, 0, BATCHES)).duplicate


def test_a_snapshot_that_an_opening_can_use_after_a_crash_outlives_newer_ones(tmp_path):
    snapshots = ProducerSnapshots(REAL_DISK, tmp_path, [])
    for offset in range(10, 100, 10):
        snapshots.write(offset, ProducerStates(forgotten_to=offset), recovery_point=25)
    names = [path.name for path in tmp_path.iterdir()]

    again = ProducerSnapshots(REAL_DISK, tmp_path, names)
    again.remove_above(25)

    found = again.load_newest(95)
    assert found is not None
    assert (found[0], found[1].forgotten_to) == (20, 20)


def test_a_snapshot_below_the_oldest_batch_is_not_taken_for_the_state_at_the_end(tmp_path):
    """The records after it are deleted: its producers may have gone on since."""
    _, log = opened(tmp_path / "logs")
    for number in range(BATCHES):
        append(log, producer=(7, 0, number))
    early = ProducerStates()
    early.record(7, 0, SequencedBatch(0, 0, 0, 0, 1000), now_ms=50)
    log.snapshots.remove_all()
    log.snapshots.write(1, early)
    log.flush_state.flush()
    log.checkpoints.write()
    log.segments.drop_oldest(len(log.segments) - 1)
    shutil.copytree(tmp_path / "logs", tmp_path / "again")

    _, again = opened(tmp_path / "again")

    assert again.producer_state.forgotten_to == ANY_FORGOTTEN
    entry = again.producer_state.get(7)
    assert entry is None or entry.batches[0].base_offset > 1


@pytest.mark.parametrize("kept", ["nothing", "all", "all, and the recovery point"])
def test_a_loss_of_power_at_any_step_of_a_deletion_leaves_producers_that_fit_the_log(
    tmp_path, kept
):
    disk, _, _, log = prepared(tmp_path, kept)
    before = disk.changes
    log.retention.advance_log_start(BATCHES)
    steps = disk.changes - before
    for step in range(1, steps + 1):
        disk, folder, _, log = prepared(tmp_path, kept)
        disk.crash_after = disk.changes + step
        with suppress(CrashError):
            log.retention.advance_log_start(BATCHES)
        disk.lose_power(random.Random(step))

        _, again = opened(folder, disk)

        # Where nothing was flushed all may be lost but the log's start.
        is_lost = kept == "nothing" and again.log_start_offset == again.log_end_offset > 0
        if not is_lost or again.producer_state.forgotten_to != ANY_FORGOTTEN:
            assert last_sequence(again) == again.log_end_offset - 1, step


@pytest.mark.parametrize("kept", ["nothing", "all", "all, and the recovery point"])
@pytest.mark.parametrize("rolls", [0, 1, 6])
def test_a_producer_goes_on_after_its_records_were_deleted_and_power_was_lost(
    tmp_path, kept, rolls
):
    """Later snapshots are not on the medium, though the recovery point is above them."""
    disk, folder, manager, log = prepared(tmp_path, kept)
    log.retention.advance_log_start(BATCHES)
    assert not manager.write_log_starts()
    for _ in range(rolls):
        append(log)
        log.flush()
        log.roll_at_end()
        manager.write_recovery_points()
    disk.lose_power()

    _, again = opened(folder, disk)

    assert again.log_start_offset == BATCHES
    assert last_sequence(again) in (BATCHES - 1, BATCHES)
    if kept != "nothing":
        assert last_sequence(again) == BATCHES


@pytest.mark.parametrize("count", range(4, 12))
def test_a_snapshot_on_the_medium_outlives_newer_ones_that_may_be_torn(tmp_path, count):
    disk = SimulatedDisk(tmp_path)
    snapshots = ProducerSnapshots(disk, tmp_path, [])
    for offset in range(10, 10 * count + 10, 10):
        snapshots.write(offset, ProducerStates(forgotten_to=offset), recovery_point=offset)
        # The file system itself brings changes of names to the medium now and then.
        sync_names(disk, tmp_path)
    disk.lose_power()

    again = ProducerSnapshots(disk, tmp_path, disk.list_names(tmp_path))

    assert again.load_newest(200) is not None


def test_a_failed_sync_of_a_snapshot_fails_the_folder_whatever_the_error_is(tmp_path):
    """The kernel may count the pages as clean: nothing is deleted on the word of a later sync."""
    disk, folder, _, log = prepared(tmp_path, "all, and the recovery point")
    disk.broken_syncs, disk.error = {folder}, errno.ENOSPC
    with pytest.raises(LogDirError):
        log.retention.advance_log_start(BATCHES)
    assert len(log.segments) > 1
