"""The producers of a log outlive the deletion of what they wrote, also when the process dies."""

import shutil
from pathlib import Path

import pytest

from storage_engine.core.retained.producer_state import (
    ANY_FORGOTTEN,
    ProducerStates,
    SequencedBatch,
)
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.files.disk import REAL_DISK
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.state.producer_snapshots import ProducerSnapshots
from storage_engine.tests.log.support import SMALL, TP, append, new_log_manager

BATCHES = 200


def opened(folder: Path) -> tuple[LogManager, PartitionLog]:
    manager = new_log_manager([folder], SMALL)
    manager.load("cluster")
    return manager, manager.get_or_create(TP)


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
    """What followed it is deleted: its producers may have gone on since."""
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
