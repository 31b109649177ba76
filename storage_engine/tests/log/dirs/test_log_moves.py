"""A log moves to another log dir: whatever ends the process on the way, the next start finds
one log, and it has everything."""

import random
from pathlib import Path

import pytest

from simulation.world.disk import CrashError, SimulatedDisk
from storage_engine.core.errors import (
    KafkaError,
    LogBusyError,
    LogDirError,
    LogShortageError,
    LogStorageError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.files.disk import REAL_DISK
from storage_engine.tests.log import compaction_support
from storage_engine.tests.log.compaction_support import compact, fill_keys, put, rows
from storage_engine.tests.log.support import (
    SMALL,
    append,
    fill,
    loaded_log_manager,
    make_batch,
    read_all,
)

TP = TopicPartition("t", 0)
HIGH_WATERMARKS = {TP: 20}


def open_manager(log_dirs: list[Path], disk=REAL_DISK, config=SMALL) -> LogManager:
    return loaded_log_manager(log_dirs, config, disk=disk)


def two(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


def other(manager: LogManager, log_dirs: list[Path]) -> Path:
    here = manager.logs[TP].directory.parent
    return next(log_dir for log_dir in log_dirs if log_dir != here)


def copy(future) -> None:
    future.follow_cuts()
    while (
        piece := future.current.reads.read(future.log.log_end_offset, max_bytes=700)
    ) is not None:
        future.log.follower_appends.append(piece.view())


def move(manager: LogManager, path: Path) -> None:
    future = manager.moves.begin(TP, manager.dirs.at(path))
    copy(future)
    manager.moves.take_over(TP, HIGH_WATERMARKS)


def names_in(disk, log_dirs: list[Path]) -> list[str]:
    return sorted(n for f in log_dirs for n in disk.list_names(f) if n.startswith("t-0"))


def state_of(log) -> tuple:
    producers = [(each.producer_id, each.epoch, tuple(each.batches)) for each in log.producer_state]
    return (
        log.log_start_offset,
        log.log_end_offset,
        read_all(log),
        log.leader_epochs.entries,
        sorted(producers),
    )


def kept_of(log) -> tuple:
    """All but the epochs, of which opening forgets one that has written nothing."""
    start, end, batches, _, producers = state_of(log)
    return start, end, batches, producers


def test_everything_is_as_it_was_in_the_other_log_dir_and_after_a_restart(tmp_path):
    log_dirs = two(tmp_path)
    manager = open_manager(log_dirs)
    log = manager.get_or_create(TP)
    append(log, producer=(9, 0, 0))
    fill(log, 40, epoch=1)
    # A producer whose batch is deleted, and an epoch that has written nothing.
    log.retention.advance_log_start(40)
    log.leader_appends.start_epoch(5)
    before = state_of(log)
    assert before[0] == 40 and (9, 0) in [each[:2] for each in before[4]]
    target = other(manager, log_dirs)
    move(manager, target)
    moved = manager.logs[TP]
    assert moved.directory == target / "t-0" and state_of(moved) == before
    assert names_in(REAL_DISK, log_dirs) == ["t-0"]
    append(moved, epoch=5)
    after = state_of(moved)
    manager.abandon()
    again = open_manager(log_dirs)
    assert again.logs[TP].directory == target / "t-0"
    assert state_of(again.logs[TP])[:3] == after[:3]
    # And back again, for a log dir that knows of the partition.
    move(again, other(again, log_dirs))
    assert state_of(again.logs[TP])[:3] == after[:3]
    again.close()


def simulated(tmp_path: Path) -> tuple[SimulatedDisk, list[Path]]:
    disk = SimulatedDisk(tmp_path)
    log_dirs = two(tmp_path)
    for log_dir in log_dirs:
        disk.make_directory(log_dir)
    disk.sync_names(disk.open_directory(tmp_path))
    return disk, log_dirs


def prepared(tmp_path: Path) -> tuple[SimulatedDisk, list[Path], LogManager]:
    disk, log_dirs = simulated(tmp_path)
    manager = open_manager(log_dirs, disk)
    # Its batch is deleted, and it is remembered.
    append(manager.get_or_create(TP), producer=(9, 0, 0))
    fill(manager.logs[TP], 25, epoch=1)
    manager.logs[TP].retention.advance_log_start(10)
    manager.logs[TP].flush()
    manager.write_log_starts()
    manager.write_recovery_points()
    manager.checkpoint_high_watermarks(HIGH_WATERMARKS)
    return disk, log_dirs, manager


def changes_of_a_move(tmp_path: Path) -> int:
    disk, log_dirs, manager = prepared(tmp_path)
    before = disk.changes
    move(manager, other(manager, log_dirs))
    return disk.changes - before


@pytest.mark.parametrize("end", ["killed", "power lost", "power lost in part"])
def test_a_crash_at_any_step_leaves_one_log_with_everything(tmp_path, end):
    steps = changes_of_a_move(tmp_path)
    assert steps > 20
    ended_in = set()
    for step in range(1, steps + 1):
        disk, log_dirs, manager = prepared(tmp_path)
        expected = kept_of(manager.logs[TP])
        target = other(manager, log_dirs)
        disk.crash_after = disk.changes + step
        with pytest.raises((CrashError, LogStorageError, OSError)):
            move(manager, target)
            # What is left to do after the last name is done in the background.
            raise CrashError
        if end == "killed":
            disk.kill_process()
        else:
            disk.lose_power(random.Random(step) if end == "power lost in part" else None)
        again = open_manager(log_dirs, disk)
        assert list(again.logs) == [TP]
        assert kept_of(again.logs[TP]) == expected, step
        assert again.high_watermark(TP) == HIGH_WATERMARKS[TP], step
        assert not any(name.endswith("-moved") for name in names_in(disk, log_dirs)), step
        ended_in.add(again.logs[TP].directory.parent == target)
        if again.logs[TP].directory.parent != target:
            # It goes on, or is asked for once more.
            for log_dir, _ in list(again.moves.interrupted.values()):
                assert log_dir.path == target
            move(again, target)
            assert kept_of(again.logs[TP]) == expected
        assert names_in(disk, log_dirs) == ["t-0"]
        again.close()
    assert ended_in == {False, True}


def test_what_is_cut_from_the_log_is_cut_from_its_copy(tmp_path):
    log_dirs = two(tmp_path)
    manager = open_manager(log_dirs)
    log = manager.get_or_create(TP)
    fill(log, 20, epoch=1)
    future = manager.moves.begin(TP, manager.dirs.at(other(manager, log_dirs)))
    copy(future)
    log.truncation.truncate_to(12)
    append(log, 5, epoch=3)
    assert future.lag == 0 or future.log.log_end_offset > 12
    copy(future)
    manager.moves.take_over(TP, HIGH_WATERMARKS)
    assert read_all(manager.logs[TP])[-1].partition_leader_epoch == 3
    log = manager.logs[TP]
    future = manager.moves.begin(TP, manager.dirs.at(other(manager, log_dirs)))
    copy(future)
    log.truncation.truncate_fully_and_start_at(3)
    assert future.cuts.begun_anew
    manager.close()


def test_a_start_that_moves_beyond_the_copy_takes_it_along(tmp_path):
    log_dirs = two(tmp_path)
    manager = open_manager(log_dirs)
    log = manager.get_or_create(TP)
    fill(log, 20)
    future = manager.moves.begin(TP, manager.dirs.at(other(manager, log_dirs)))
    log.retention.advance_log_start(30)
    copy(future)
    manager.moves.take_over(TP, HIGH_WATERMARKS)
    assert manager.logs[TP].log_start_offset == 30
    manager.abandon()
    assert open_manager(log_dirs).logs[TP].log_start_offset == 30


def test_a_cancelled_move_leaves_nothing(tmp_path):
    log_dirs = two(tmp_path)
    manager = open_manager(log_dirs)
    fill(manager.get_or_create(TP), 5)
    manager.moves.begin(TP, manager.dirs.at(other(manager, log_dirs)))
    assert len(names_in(REAL_DISK, log_dirs)) == 2
    manager.moves.cancel(TP)
    assert names_in(REAL_DISK, log_dirs) == ["t-0"] and not manager.moves.under_way
    manager.moves.begin(TP, manager.dirs.at(other(manager, log_dirs)))
    manager.delete(TP)
    assert names_in(REAL_DISK, log_dirs) == []
    manager.close()


@pytest.mark.parametrize("where", ["source", "target"])
def test_a_log_dir_that_fails_at_the_last_moment_costs_no_record(tmp_path, where):
    disk, log_dirs, manager = prepared(tmp_path)
    expected = state_of(manager.logs[TP])[:3]
    target = other(manager, log_dirs)
    source = manager.logs[TP].directory.parent
    copy(manager.moves.begin(TP, manager.dirs.at(target)))
    disk.broken.add(source if where == "source" else target)
    with pytest.raises(LogStorageError) as failure:
        manager.moves.take_over(TP, HIGH_WATERMARKS)
    assert manager.logs[TP].directory.parent == source
    # Whoever moves it tells the two log dirs apart by that, and fails the target.
    is_of_target = TP in manager.moves.under_way
    assert is_of_target == (where == "target") == isinstance(failure.value, LogDirError)
    if is_of_target:
        manager.fail_dir(target)
    disk.broken.clear()
    assert not manager.moves.under_way
    if where == "target" or not isinstance(failure.value, LogDirError):
        # It goes on where it was.
        append(manager.logs[TP], epoch=1)
        expected = state_of(manager.logs[TP])[:3]
    disk.kill_process()
    again = open_manager(log_dirs, disk)
    assert state_of(again.logs[TP])[:3] == expected


def test_what_is_compacted_after_a_move_is_there_after_a_kill(tmp_path):
    """Recovery takes a gap above the recovery point on the medium for what a crash has left."""
    disk, log_dirs = simulated(tmp_path)
    config = compaction_support.CONFIG
    manager = open_manager(log_dirs, disk, config)
    fill_keys(manager.get_or_create(TP), 5, 30)
    # From here on the files know that offsets may be missing, and are not written for that again.
    assert compact(manager.logs[TP])
    move(manager, other(manager, log_dirs))
    log = manager.logs[TP]
    fill_keys(log, 5, 30)
    assert compact(log)
    end, kept = log.log_end_offset, rows(log)
    assert len(kept) < end
    disk.kill_process()
    again = open_manager(log_dirs, disk, config)
    assert again.logs[TP].log_end_offset == end and rows(again.logs[TP]) == kept


def test_a_cut_that_ends_for_want_of_descriptors_is_known_to_the_copy(tmp_path):
    times_cut_short = 0
    for calls in range(1000):
        disk, log_dirs, manager = prepared(tmp_path)
        log, target = manager.logs[TP], manager.dirs.at(other(manager, log_dirs))
        future = manager.moves.begin(TP, target)
        copy(future)
        first = disk.opens + 1 + calls
        disk.short_at = range(first, first + 1)
        try:
            log.truncation.truncate_to(22)
        except LogShortageError:
            if log.is_cut_short:
                times_cut_short += 1
                assert future.cuts.begun_anew
                future.cuts.begun_anew = False
                log.open_again()
                assert future.cuts.begun_anew and future.cuts.lowest_end_offset is None
                log.truncation.truncate_to(15)
                assert future.cuts.lowest_end_offset == log.log_end_offset
        is_over = disk.opens < first
        disk.short_at = range(0)
        # A leader's log goes on where the cut has left it.
        for _ in range(40):
            append(log, epoch=3)
        if future.cuts.begun_anew:
            future = manager.moves.begin(TP, target)
        copy(future)
        expected = read_all(log)
        manager.moves.take_over(TP, HIGH_WATERMARKS)
        assert read_all(manager.logs[TP]) == expected, calls
        manager.close()
        if is_over:
            break
    assert times_cut_short


def test_a_shortage_while_the_copy_is_completed_costs_nothing_but_time(tmp_path):
    waited = 0
    for calls in range(1000):
        disk, log_dirs, manager = prepared(tmp_path)
        target = other(manager, log_dirs)
        future = manager.moves.begin(TP, manager.dirs.at(target))
        copy(future)
        first = disk.opens + 1 + calls
        disk.short_at = range(first, first + 1)
        try:
            manager.moves.take_over(TP, HIGH_WATERMARKS)
        except LogBusyError:
            waited += 1
            assert manager.moves.under_way == {TP: future}
            append(manager.logs[TP], producer=(9, 0, 0), epoch=1)
            expected = state_of(manager.logs[TP])
            copy(future)
            manager.moves.take_over(TP, HIGH_WATERMARKS)
            assert manager.logs[TP].directory.parent == target
            assert state_of(manager.logs[TP]) == expected, calls
            disk.kill_process()
            assert state_of(open_manager(log_dirs, disk).logs[TP]) == expected, calls
        if disk.opens < first:
            break
        assert manager.logs[TP].directory.parent == target, calls
    assert waited > 20


def test_a_copy_that_was_not_needed_is_never_taken_for_the_log(tmp_path):
    disk, log_dirs, manager = prepared(tmp_path)
    future = manager.moves.begin(TP, manager.dirs.at(other(manager, log_dirs)))
    copy(future)
    path = future.log.directory
    disk.rename(path, path.with_name(path.name.replace("-future", "-moved")))
    disk.sync_names(disk.open_directory(path.parent))
    disk.kill_process()
    again = open_manager(log_dirs, disk)
    assert TP in again.moves.interrupted
    disk.lose_power()
    assert not any(name.endswith("-moved") for name in names_in(disk, log_dirs))
    again = open_manager(log_dirs, disk)
    # It is removed, and the process dies in the middle of that.
    disk.crash_after = disk.changes + 4
    with pytest.raises(CrashError):
        again.moves.forget_interrupted(TP)
    disk.lose_power()
    assert len(names_in(disk, log_dirs)) == 2
    again = open_manager(log_dirs, disk)
    assert not again.moves.interrupted and names_in(disk, log_dirs) == ["t-0"]


def test_offsets_missing_at_the_end_of_the_log_are_missing_in_the_other_log_dir(tmp_path):
    disk, log_dirs = simulated(tmp_path)
    config = compaction_support.CONFIG
    manager = open_manager(log_dirs, disk, config)
    log = manager.get_or_create(TP)
    for number in range(60):
        put(log, [(b"other %d" % number, bytes(60))])
        put(log, [(b"one", bytes(60))])
    assert compact(log)
    kept = {row.offset for row in rows(log)}
    names = disk.list_names(log.directory)
    bases = [int(name.removesuffix(".log")) for name in names if name.endswith(".log")]
    end = max(base for base in bases if base and base - 1 not in kept)
    log.truncation.truncate_to(end)
    assert log.log_end_offset == end > rows_below_the_end(log)[-1].offset + 1
    expected = rows_below_the_end(log)
    future = manager.moves.begin(TP, manager.dirs.at(other(manager, log_dirs)))
    copy(future)
    future.end_with_current()
    manager.moves.take_over(TP, HIGH_WATERMARKS)
    moved = manager.logs[TP]
    assert moved.log_end_offset == end and rows_below_the_end(moved) == expected
    disk.kill_process()
    again = open_manager(log_dirs, disk, config).logs[TP]
    assert again.log_end_offset == end and rows_below_the_end(again) == expected
    fill_keys(again, 1, 1)
    assert rows(again)[-1].offset == end


def rows_below_the_end(log) -> list:
    found, position = [], log.log_start_offset
    while (piece := log.reads.read(position, max_bytes=700)) is not None:
        found += compaction_support.rows_of(piece.view(), position)
        position = piece.end_offset
    return found


def test_a_log_whose_name_leaves_no_room_for_that_of_a_copy_is_not_moved(tmp_path):
    log_dirs = two(tmp_path)
    manager = open_manager(log_dirs)
    long = TopicPartition("x" * 249, 0)
    log = manager.get_or_create(long)
    with pytest.raises(KafkaError, match="no room"):
        manager.moves.begin(long, manager.dirs.at(log_dirs[1]))
    log.leader_appends.append(make_batch(), leader_epoch=0, now_ms=0)
    manager.close()
