"""A log dir that misses the registration after a loss of power says later which incarnation that
was, so that the logs of the others stay above suspicion."""

import contextlib
from pathlib import Path

import pytest

from simulation.world.disk import CrashError, SimulatedDisk
from storage_engine.core.ids import NO_TAIL_LOST, TAIL_LOST_NOW, BrokerEpoch
from storage_engine.log.dirs.log_dir import BOOT_EPOCH_FILE, BrokerLogDir
from storage_engine.log.dirs.log_dirs import LogDirs
from storage_engine.log.dirs.tail_lost import BootEpoch, TailLost
from storage_engine.log.files.disk import replace_file

ROOT = Path("/disks")
GOOD, LATE = ROOT / "good", ROOT / "late"
FIRST, SECOND, THIRD = BrokerEpoch(10), BrokerEpoch(20), BrokerEpoch(30)


class Machine:
    """A broker's log dirs on one simulated machine."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(ROOT)
        self.dirs = self.start()
        self.dirs.keep_registration(BrokerEpoch(5))

    def start(self, *paths: Path) -> LogDirs:
        self.dirs = LogDirs(self.disk, paths or (GOOD, LATE), broker_id=1, reserve_bytes=0)
        self.dirs.do_at_start(BrokerLogDir.begin)
        return self.dirs

    def restart(self, *paths: Path) -> LogDirs:
        self.disk.kill_process()
        return self.start(*paths)

    def lose_power(self) -> LogDirs:
        self.disk.lose_power()
        return self.start()

    def fail(self, path: Path) -> None:
        self.dirs.at(path).failed = True

    def stop_in_order(self, *paths: Path) -> None:
        for path in paths:
            self.dirs.at(path).mark_clean()


def epochs(dirs: LogDirs) -> list[BrokerEpoch]:
    return [log_dir.tail_lost_epoch for log_dir in dirs.working]


def miss_the_registration(machine: Machine) -> None:
    machine.lose_power()
    machine.fail(LATE)
    machine.dirs.keep_registration(FIRST)


def test_a_log_dir_that_missed_the_registration_takes_its_epoch():
    machine = Machine()
    miss_the_registration(machine)
    machine.restart()
    machine.fail(LATE)
    machine.dirs.keep_registration(SECOND)
    for _ in range(2):
        dirs = machine.restart()
        assert (epochs(dirs), dirs.tail_lost_epoch) == ([FIRST, FIRST], FIRST)
        dirs.keep_registration(THIRD)


def test_the_epoch_is_known_where_the_other_log_dir_has_lost_nothing():
    """The log dir that was stopped in order says an incarnation of long ago, which is not it."""
    machine = Machine()
    machine.fail(LATE)
    machine.stop_in_order(GOOD)
    miss_the_registration(machine)
    assert epochs(machine.dirs) == [5]
    assert epochs(machine.restart()) == [5, FIRST]


def test_after_another_loss_of_power_the_epoch_is_the_next_one():
    machine = Machine()
    miss_the_registration(machine)
    assert epochs(machine.lose_power()) == [TAIL_LOST_NOW, TAIL_LOST_NOW]


def test_a_log_dir_that_was_out_of_use_meanwhile_takes_no_earlier_epoch():
    """The broker may have held its partitions in another log dir, and lost them there."""
    machine = Machine()
    miss_the_registration(machine)
    machine.restart(GOOD).keep_registration(SECOND)
    assert epochs(machine.restart()) == [FIRST, TAIL_LOST_NOW]


def test_a_new_log_dir_may_stand_for_one_that_lost_everything_just_now():
    machine = Machine()
    machine.lose_power().keep_registration(FIRST)
    machine.restart()
    for name in list(machine.disk.list_names(LATE)):
        machine.disk.remove(LATE / name)
    machine.restart()
    machine.fail(LATE)
    machine.dirs.keep_registration(SECOND)
    assert epochs(machine.restart()) == [FIRST, TAIL_LOST_NOW]


@pytest.mark.parametrize("content", [b"", b"boot 1", b"boot 1 x", b"\xff\n\n", b"boot 1 -3\n/a\n"])
def test_a_damaged_file_gives_no_epoch(content):
    machine = Machine()
    miss_the_registration(machine)
    replace_file(machine.disk, GOOD / BOOT_EPOCH_FILE, content, sync=True)
    assert epochs(machine.restart()) == [FIRST, TAIL_LOST_NOW]


@pytest.mark.parametrize("crash_after", range(14))
def test_a_kill_while_the_epoch_is_written_never_makes_a_lost_tail_whole(crash_after):
    machine = Machine()
    machine.lose_power()
    machine.fail(LATE)
    machine.disk.crash_after = machine.disk.changes + crash_after
    with contextlib.suppress(CrashError):
        machine.dirs.keep_registration(FIRST)
        machine.restart()
    dirs = machine.restart()
    good, late = epochs(dirs)
    assert good in (FIRST, TAIL_LOST_NOW)
    assert late in (FIRST, TAIL_LOST_NOW)
    dirs.keep_registration(SECOND)
    assert set(epochs(machine.restart())) <= {FIRST, SECOND}


def test_the_file_of_the_boot_is_read_as_it_was_written():
    epoch = BootEpoch(FIRST, "a boot", (GOOD, LATE))
    assert BootEpoch.parse(bytes(epoch)) == epoch


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", TailLost(NO_TAIL_LOST)),
        ("7", TailLost(BrokerEpoch(7))),
        ("-1", TailLost(TAIL_LOST_NOW)),
        ("-1 a boot", TailLost(TAIL_LOST_NOW, "a boot")),
        ("7 a boot", None),
        ("-2", None),
        ("9" * 30, None),
    ],
)
def test_a_lost_tail_is_read_as_it_was_written(text, expected):
    assert TailLost.parse(text) == expected
    if text and expected is not None:
        assert str(expected) == text
