"""A log moves to another data folder: whatever ends the process on the way, the next start finds
one log, and it has everything."""

import random
from pathlib import Path

import pytest

from storage_engine.core.errors import ErrorCode, KafkaError, LogFolderError, LogStorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.disk import REAL_DISK
from storage_engine.log.log_manager import LogManager
from storage_engine.log.wanted_folders import WANTED_MAX, WantedFolders
from storage_engine.simulation.disk import CrashError, SimulatedDisk
from storage_engine.tests.log.support import SMALL, ManualClock, append, fill, make_batch, read_all

TP = TopicPartition("t", 0)


def open_manager(folders: list[Path], disk=REAL_DISK) -> LogManager:
    manager = LogManager(folders, SMALL, broker_id=1, clock=ManualClock(), disk=disk)
    manager.load("cluster")
    return manager


def two(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


def other(manager: LogManager, folders: list[Path]) -> Path:
    here = manager.logs[TP].directory.parent
    return next(folder for folder in folders if folder != here)


def copy(future) -> None:
    future.bring_in_line()
    while (piece := future.current.read(future.log.log_end_offset, max_bytes=700)) is not None:
        future.log.append_as_follower(piece.view())


def move(manager: LogManager, path: Path) -> None:
    future = manager.moves.begin(TP, manager.folder_at(path))
    copy(future)
    manager.moves.take_over(TP)


def names_in(disk, folders: list[Path]) -> list[str]:
    return sorted(n for f in folders for n in disk.list_names(f) if n.startswith("t-0"))


def state_of(log) -> tuple:
    producers = [(each.producer_id, each.epoch, tuple(each.batches)) for each in log.producer_state]
    return (
        log.log_start_offset,
        log.log_end_offset,
        read_all(log),
        log.leader_epochs.entries,
        sorted(producers),
    )


def test_everything_is_as_it_was_in_the_other_folder_and_after_a_restart(tmp_path):
    folders = two(tmp_path)
    manager = open_manager(folders)
    log = manager.get_or_create(TP)
    append(log, producer=(9, 0, 0))
    fill(log, 40, epoch=1)
    # A producer whose batch is deleted, and an epoch that has written nothing.
    log.advance_log_start(40)
    log.start_leader_epoch(5)
    before = state_of(log)
    assert before[0] == 40 and (9, 0) in [each[:2] for each in before[4]]
    target = other(manager, folders)
    move(manager, target)
    moved = manager.logs[TP]
    assert moved.directory == target / "t-0" and state_of(moved) == before
    assert names_in(REAL_DISK, folders) == ["t-0"]
    append(moved, epoch=5)
    after = state_of(moved)
    manager.abandon()
    again = open_manager(folders)
    assert again.logs[TP].directory == target / "t-0"
    assert state_of(again.logs[TP])[:3] == after[:3]
    # And back again, for a folder that knows of the partition.
    move(again, other(again, folders))
    assert state_of(again.logs[TP])[:3] == after[:3]
    again.close()


def prepared(tmp_path: Path) -> tuple[SimulatedDisk, list[Path], LogManager]:
    disk = SimulatedDisk(tmp_path)
    folders = two(tmp_path)
    for folder in folders:
        disk.make_directory(folder)
    disk.sync_names(disk.open_directory(tmp_path))
    manager = open_manager(folders, disk)
    fill(manager.get_or_create(TP), 25, epoch=1)
    manager.logs[TP].advance_log_start(10)
    manager.logs[TP].flush()
    manager.write_log_starts()
    manager.write_recovery_points()
    return disk, folders, manager


def changes_of_a_move(tmp_path: Path) -> int:
    disk, folders, manager = prepared(tmp_path)
    before = disk.changes
    move(manager, other(manager, folders))
    return disk.changes - before


@pytest.mark.parametrize("end", ["killed", "power lost", "power lost in part"])
def test_a_crash_at_any_step_leaves_one_log_with_everything(tmp_path, end):
    steps = changes_of_a_move(tmp_path)
    assert steps > 20
    ended_in = set()
    for step in range(1, steps + 1):
        disk, folders, manager = prepared(tmp_path)
        expected = state_of(manager.logs[TP])[:3]
        target = other(manager, folders)
        disk.crash_after = disk.changes + step
        with pytest.raises((CrashError, LogStorageError, OSError)):
            move(manager, target)
            # What is left to do after the last name is done in the background.
            raise CrashError
        if end == "killed":
            disk.kill_process()
        else:
            disk.lose_power(random.Random(step) if end == "power lost in part" else None)
        again = open_manager(folders, disk)
        assert list(again.logs) == [TP]
        assert state_of(again.logs[TP])[:3] == expected, step
        ended_in.add(again.logs[TP].directory.parent == target)
        if again.logs[TP].directory.parent != target:
            # It goes on, or is asked for once more.
            for folder, _ in list(again.moves.interrupted.values()):
                assert folder.path == target
            move(again, target)
            assert state_of(again.logs[TP])[:3] == expected
        assert names_in(disk, folders) == ["t-0"]
        again.close()
    assert ended_in == {False, True}


def test_what_is_cut_from_the_log_is_cut_from_its_copy(tmp_path):
    folders = two(tmp_path)
    manager = open_manager(folders)
    log = manager.get_or_create(TP)
    fill(log, 20, epoch=1)
    future = manager.moves.begin(TP, manager.folder_at(other(manager, folders)))
    copy(future)
    log.truncate_to(12)
    append(log, 5, epoch=3)
    assert future.lag == 0 or future.log.log_end_offset > 12
    copy(future)
    manager.moves.take_over(TP)
    assert read_all(manager.logs[TP])[-1].partition_leader_epoch == 3
    log = manager.logs[TP]
    future = manager.moves.begin(TP, manager.folder_at(other(manager, folders)))
    copy(future)
    log.truncate_fully_and_start_at(3)
    assert future.is_stale
    manager.close()


def test_a_start_that_moves_beyond_the_copy_takes_it_along(tmp_path):
    folders = two(tmp_path)
    manager = open_manager(folders)
    log = manager.get_or_create(TP)
    fill(log, 20)
    future = manager.moves.begin(TP, manager.folder_at(other(manager, folders)))
    log.advance_log_start(30)
    copy(future)
    manager.moves.take_over(TP)
    assert manager.logs[TP].log_start_offset == 30
    manager.abandon()
    assert open_manager(folders).logs[TP].log_start_offset == 30


def test_a_cancelled_move_leaves_nothing(tmp_path):
    folders = two(tmp_path)
    manager = open_manager(folders)
    fill(manager.get_or_create(TP), 5)
    manager.moves.begin(TP, manager.folder_at(other(manager, folders)))
    assert len(names_in(REAL_DISK, folders)) == 2
    manager.moves.cancel(TP)
    assert names_in(REAL_DISK, folders) == ["t-0"] and not manager.moves.under_way
    manager.moves.begin(TP, manager.folder_at(other(manager, folders)))
    manager.delete(TP)
    assert names_in(REAL_DISK, folders) == []
    manager.close()


@pytest.mark.parametrize("where", ["source", "target"])
def test_a_folder_that_fails_at_the_last_moment_costs_no_record(tmp_path, where):
    disk, folders, manager = prepared(tmp_path)
    expected = state_of(manager.logs[TP])[:3]
    target = other(manager, folders)
    source = manager.logs[TP].directory.parent
    copy(manager.moves.begin(TP, manager.folder_at(target)))
    disk.broken.add(source if where == "source" else target)
    with pytest.raises(LogStorageError) as failure:
        manager.moves.take_over(TP)
    assert not manager.moves.under_way and manager.logs[TP].directory.parent == source
    disk.broken.clear()
    if not isinstance(failure.value, LogFolderError):
        # It goes on where it was.
        append(manager.logs[TP], epoch=1)
        expected = state_of(manager.logs[TP])[:3]
    disk.kill_process()
    again = open_manager(folders, disk)
    assert state_of(again.logs[TP])[:3] == expected


def test_unknown_folders_and_names_without_room_are_refused(tmp_path):
    folders = two(tmp_path)
    manager = open_manager(folders)
    with pytest.raises(KafkaError) as refused:
        manager.folder_at(tmp_path / "c")
    assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    long = TopicPartition("x" * 249, 0)
    log = manager.get_or_create(long)
    with pytest.raises(KafkaError, match="no room"):
        manager.moves.begin(long, manager.folder_at(folders[1]))
    log.append_as_leader(make_batch(), leader_epoch=0, now_ms=0)
    manager.close()


def test_wishes_have_a_bound():
    wanted = WantedFolders()
    for number in range(WANTED_MAX + 1):
        wanted.want(TopicPartition("t", number), Path("/a"))
    assert wanted.take(TopicPartition("t", 0)) is None
    assert wanted.take(TopicPartition("t", 1)) == Path("/a")
    assert wanted.take(TopicPartition("t", 1)) is None
