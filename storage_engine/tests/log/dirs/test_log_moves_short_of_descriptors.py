"""The process runs out of descriptors at any call of a move between log dirs: the log is
served all the while, from the one log dir or the other, and the files of both tell where it lies
(R-LOG8, KIP-113)."""

import errno
import random
from pathlib import Path

import pytest

from simulation.world.disk import CrashError
from storage_engine.core.errors import LogDirError, LogStorageError
from storage_engine.log.state.checkpoints import (
    HIGH_WATERMARKS_FILE,
    LOG_STARTS_FILE,
    RECOVERY_POINTS_FILE,
    read_offsets,
)
from storage_engine.tests.log.dirs.test_log_moves import (
    HIGH_WATERMARKS,
    TP,
    copy,
    names_in,
    open_manager,
    other,
    prepared,
    state_of,
)
from storage_engine.tests.log.support import append, read_all
from storage_engine.tests.sampling import ALL_FAULTS

EVER = 1 << 40


class World:
    """A log that is about to be moved, and what of it was acknowledged."""

    def __init__(self, tmp_path: Path) -> None:
        self.disk, self.log_dirs, self.manager = prepared(tmp_path)
        self.target = other(self.manager, self.log_dirs)
        self.write()

    def write(self) -> None:
        log = self.manager.logs[TP]
        append(log, epoch=1)
        log.flush()
        self.acknowledged = read_all(log)

    def move(self) -> None:
        """Tried again, once descriptors are back, until it is done."""
        moves = self.manager.moves
        for _ in range(3):
            try:
                if TP not in moves.under_way:
                    moves.begin(TP, self.manager.dirs.at(self.target))
                copy(moves.under_way[TP])
                moves.take_over(TP, HIGH_WATERMARKS)
                return
            except LogStorageError as failure:
                assert not isinstance(failure, LogDirError), "the partition would be offline"
                self.disk.short_at = range(0)
                assert self.manager.logs[TP].directory.parent != self.target
                self.write()
                self.check_checkpoints()
        raise AssertionError("it never moved")

    def check_checkpoints(self) -> None:
        """The checkpoints of a log dir name the log exactly where it lies."""
        self.manager.write_recovery_points()
        self.manager.write_log_starts()
        self.manager.checkpoint_high_watermarks(HIGH_WATERMARKS)
        here = self.manager.logs[TP].directory.parent
        for log_dir in self.log_dirs:
            for name in (RECOVERY_POINTS_FILE, LOG_STARTS_FILE, HIGH_WATERMARKS_FILE):
                found = read_offsets(self.disk, log_dir / name).offsets
                assert set(found) == ({TP} if log_dir == here else set()), (log_dir, name)


def short_world(tmp_path: Path, calls: int, lasts: int) -> World:
    """Where call number `calls` from now on that takes a descriptor fails, and some after it."""
    world = World(tmp_path)
    first = world.disk.opens + 1 + calls
    world.disk.short_at = range(first, first + lasts)
    return world


STEP = 1 if ALL_FAULTS else 6
"""Every call of a move, or by default one in six, others for each way to end."""
CRASHES = 6 if ALL_FAULTS else 2
"""For each such call, at steps chosen at random."""


@pytest.mark.parametrize("lasts", [1, EVER], ids=["once", "for a while"])
@pytest.mark.parametrize(
    ("end", "first_call"), [("closed", 0), ("killed", 1 % STEP), ("power lost", 2 % STEP)]
)
def test_a_shortage_at_any_call_of_a_move_takes_no_log_offline(tmp_path, lasts, end, first_call):
    calls = first_call
    while True:
        world = short_world(tmp_path, calls, lasts)
        disk, manager, first = world.disk, world.manager, world.disk.short_at.start
        world.move()
        if disk.opens < first:
            break
        disk.short_at = range(0)
        log = manager.logs[TP]
        assert log.directory == world.target / "t-0", f"short at call {calls}"
        assert len(manager.dirs.working_paths) == 2
        assert read_all(log) == world.acknowledged, f"short at call {calls}"
        append(log, producer=(9, 0, 0), epoch=1)
        world.check_checkpoints()
        log.flush()
        expected = state_of(log)
        manager.retry_removals()
        assert names_in(disk, world.log_dirs) == ["t-0"], f"short at call {calls}"
        if end == "closed":
            manager.close()
        elif end == "killed":
            disk.kill_process()
        else:
            disk.lose_power()
        again = open_manager(world.log_dirs, disk)
        assert again.dirs.were_shut_down_clean == (end == "closed")
        assert again.logs[TP].directory.parent == world.target
        assert state_of(again.logs[TP]) == expected, f"short at call {calls}"
        assert again.high_watermark(TP) == HIGH_WATERMARKS[TP]
        append(again.logs[TP], producer=(9, 0, 1), epoch=1)
        calls += STEP
    assert calls > 30


def check_crashed(world: World, end: str, chance: random.Random) -> None:
    """Just one copy opens, with everything that was acknowledged, and can be moved."""
    disk, log_dirs = world.disk, world.log_dirs
    disk.short_at = range(0)
    if end == "killed":
        disk.kill_process()
    else:
        disk.lose_power(chance if end == "power lost in part" else None)
    again = open_manager(log_dirs, disk)
    assert list(again.logs) == [TP]
    log = again.logs[TP]
    assert log.log_start_offset == 10
    assert read_all(log)[: len(world.acknowledged)] == world.acknowledged
    assert again.high_watermark(TP) == HIGH_WATERMARKS[TP]
    assert not any(name.endswith("-moved") for name in names_in(disk, log_dirs))
    world.manager = again
    if log.directory.parent != world.target:
        world.move()
    assert read_all(again.logs[TP])[: len(world.acknowledged)] == world.acknowledged
    assert names_in(disk, log_dirs) == ["t-0"]


@pytest.mark.parametrize(
    ("end", "first_call"),
    [("killed", 0), ("power lost", 1 % STEP), ("power lost in part", 2 % STEP)],
)
def test_a_crash_in_a_move_that_a_shortage_has_held_up_leaves_one_log(tmp_path, end, first_call):
    chance = random.Random(7)
    calls, crashes = first_call, 0
    while True:
        measured = short_world(tmp_path, calls, 5)
        first, before = measured.disk.short_at.start, measured.disk.changes
        measured.move()
        if measured.disk.opens < first:
            break
        steps = measured.disk.changes - before
        for step in chance.sample(range(1, steps + 1), CRASHES):
            world = short_world(tmp_path, calls, 5)
            world.disk.crash_after = world.disk.changes + step
            with pytest.raises(CrashError):
                world.move()
                # The rest is done in the background.
                raise CrashError
            crashes += 1
            check_crashed(world, end, chance)
        calls += STEP
    assert crashes > 25 * CRASHES // STEP


def renames_fail(monkeypatch, world: World, names: set[str], code: int = errno.ENOMEM) -> list:
    """From now on, of log dirs with one of these names or endings, `world.move` gives up once for
    each: the names that were refused."""
    rename, refused = world.disk.rename, []

    def refuse(path: Path, target: Path) -> None:
        ending = target.name if target.name == "t-0" else "-" + target.name.rpartition("-")[2]
        place = f"{target.parent.name}/{ending}"
        if place in names and place not in refused:
            refused.append(place)
            raise OSError(code, "refused")
        rename(path, target)

    monkeypatch.setattr(world.disk, "rename", refuse)
    return refused


def test_a_name_that_is_refused_for_want_of_memory_gives_the_log_its_own_back(
    tmp_path, monkeypatch
):
    """A rename takes no descriptor, but the kernel may have no memory for it."""
    for place in ("-moved", "-delete", "t-0"):
        world = World(tmp_path)
        here = world.target if place != "-delete" else other_of(world)
        refused = renames_fail(monkeypatch, world, {f"{here.name}/{place}"})
        world.move()
        assert len(refused) == 1
        assert world.manager.logs[TP].directory.parent == world.target
        assert read_all(world.manager.logs[TP]) == world.acknowledged
        world.check_checkpoints()
        check_crashed(world, "power lost", random.Random(1))


def other_of(world: World) -> Path:
    return next(log_dir for log_dir in world.log_dirs if log_dir != world.target)


@pytest.mark.parametrize(
    ("end", "first_step"),
    [("killed", 1), ("power lost", 1 + 1 % STEP), ("power lost in part", 1 + 2 % STEP)],
)
def test_a_crash_while_the_log_gets_its_name_back_leaves_one_log(
    tmp_path, monkeypatch, end, first_step
):
    chance = random.Random(3)
    steps = first_step
    while True:
        world = World(tmp_path)
        refused = renames_fail(monkeypatch, world, {f"{world.target.name}/t-0"})
        world.disk.crash_after = world.disk.changes + steps
        try:
            world.move()
        except CrashError:
            monkeypatch.undo()
            check_crashed(world, end, chance)
        else:
            assert refused
            break
        steps += STEP
    assert steps > 60


def test_a_move_that_ends_in_doubt_is_told_by_the_checkpoints_of_both_log_dirs(
    tmp_path, monkeypatch
):
    """Neither name can be given: the partition waits for the next start, which must know where the
    log begins and what of it is flushed, wherever it finds it."""
    world = World(tmp_path)
    source = other_of(world)
    renames_fail(
        monkeypatch, world, {f"{world.target.name}/t-0", f"{source.name}/t-0"}, errno.EACCES
    )
    future = world.manager.moves.begin(TP, world.manager.dirs.at(world.target))
    copy(future)
    with pytest.raises(LogDirError):
        world.manager.moves.take_over(TP, HIGH_WATERMARKS)
    world.manager.write_recovery_points()
    world.manager.write_log_starts()
    world.manager.checkpoint_high_watermarks(HIGH_WATERMARKS)
    end = world.manager.logs[TP].log_end_offset
    for log_dir in world.log_dirs:
        assert read_offsets(world.disk, log_dir / RECOVERY_POINTS_FILE).offsets == {TP: end}
        assert read_offsets(world.disk, log_dir / LOG_STARTS_FILE).offsets == {TP: 10}
        assert read_offsets(world.disk, log_dir / HIGH_WATERMARKS_FILE).offsets == {TP: 20}
    monkeypatch.undo()
    check_crashed(world, "power lost", random.Random(2))
