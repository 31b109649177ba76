"""What is left on the simulated disk after a crash: what was synced, and any part of the rest."""

import random
from pathlib import Path

import pytest

from simulation.world.disk import CrashError, SimulatedDisk
from storage_engine.log.files.disk import replace_file, write_fully

ROOT = Path("/data")
FILE = ROOT / "file"


def sync_names(disk: SimulatedDisk) -> None:
    descriptor = disk.open_directory(ROOT)
    disk.sync_names(descriptor)
    disk.close(descriptor)


def with_synced_file(content: bytes) -> tuple[SimulatedDisk, int]:
    disk = SimulatedDisk(ROOT)
    descriptor = disk.open_for_append(FILE)
    write_fully(disk, descriptor, content, 0)
    disk.sync(descriptor)
    sync_names(disk)
    return disk, descriptor


def outcomes(act, seeds: int = 400) -> set[bytes]:
    """What is left of the file "0123" that `act` has changed."""
    found = set()
    for seed in range(seeds):
        disk, descriptor = with_synced_file(b"0123")
        act(disk, descriptor)
        disk.lose_power(random.Random(seed))
        found.add(disk.read_file(FILE))
    return found


def test_without_a_generator_only_what_was_synced_is_left():
    disk, descriptor = with_synced_file(b"0123")
    disk.pwrite(descriptor, b"456", 4)
    disk.open_for_append(ROOT / "other")
    disk.lose_power()
    assert disk.list_names(ROOT) == ["file"]
    assert disk.read_file(FILE) == b"0123"
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.size(descriptor)


def test_of_a_write_any_prefix_may_be_left_and_zeros_for_the_rest():
    def act(disk, descriptor):
        disk.pwrite(descriptor, b"ab", 4)

    assert outcomes(act) == {b"0123", b"0123a", b"0123ab", b"0123a\0", b"0123\0\0"}


def test_of_two_writes_the_later_one_may_be_left_alone():
    def act(disk, descriptor):
        disk.pwrite(descriptor, b"a", 4)
        disk.pwrite(descriptor, b"b", 5)

    assert outcomes(act) >= {b"0123", b"0123a", b"0123ab", b"0123\0b"}


def test_bytes_from_before_a_truncation_may_be_back_behind_newer_ones():
    def act(disk, descriptor):
        disk.truncate(descriptor, 1)
        disk.pwrite(descriptor, b"a", 1)

    assert outcomes(act) >= {b"0123", b"0", b"0a", b"0a23", b"0\0"}


def test_a_synced_file_without_a_synced_name_may_be_gone():
    found = set()
    for seed in range(100):
        disk, _ = with_synced_file(b"old")
        replace_file(disk, ROOT / "file", b"new", sync=False)
        disk.lose_power(random.Random(seed))
        found.add(disk.read_file(FILE))
    assert {b"old", b"new", b""} <= found


def test_names_are_lost_in_order_but_for_those_of_new_files():
    found = set()
    for seed in range(200):
        disk, _ = with_synced_file(b"")
        disk.open_for_append(ROOT / "other")
        disk.rename(FILE, ROOT / "renamed")
        disk.lose_power(random.Random(seed))
        found.add(tuple(sorted(disk.list_names(ROOT))))
    assert found == {("file",), ("file", "other"), ("other", "renamed"), ("renamed",)}


def test_after_the_crash_nothing_reaches_the_files():
    disk, descriptor = with_synced_file(b"0123")
    disk.crash_after = disk.changes + 2
    disk.pwrite(descriptor, b"4", 4)
    with pytest.raises(CrashError):
        disk.sync(descriptor)
    with pytest.raises(CrashError):
        disk.pwrite(descriptor, b"5", 5)
    with pytest.raises(CrashError):
        disk.remove(FILE)
    disk.lose_power()
    assert disk.read_file(FILE) == b"0123"


def test_a_killed_process_loses_nothing_but_its_locks():
    disk, descriptor = with_synced_file(b"0123")
    assert disk.lock(ROOT / "lock") is not None
    assert disk.lock(ROOT / "lock") is None
    disk.pwrite(descriptor, b"4", 4)
    disk.kill_process()
    assert disk.read_file(FILE) == b"01234"
    assert disk.lock(ROOT / "lock") is not None


def with_failed_sync(written: bytes) -> tuple[SimulatedDisk, int]:
    """The file "0123", and behind it what a sync did not bring to the medium."""
    disk, descriptor = with_synced_file(b"0123")
    disk.pwrite(descriptor, written, 4)
    disk.broken_syncs.add(ROOT)
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync(descriptor)
    disk.broken_syncs.clear()
    return disk, descriptor


@pytest.mark.parametrize("seed", range(20))
def test_after_a_failed_sync_a_later_one_succeeds_without_the_bytes(seed):
    disk, descriptor = with_failed_sync(b"45")
    disk.pwrite(descriptor, b"6", 6)
    disk.sync(descriptor)
    disk.kill_process()
    assert disk.read_file(FILE) == b"0123456"
    disk.lose_power(random.Random(seed))
    assert disk.read_file(FILE) == b"0123\0\0" + b"6"


@pytest.mark.parametrize("seed", range(20))
def test_bytes_that_are_written_anew_are_synced_again(seed):
    disk, descriptor = with_failed_sync(b"45")
    disk.pwrite(descriptor, b"45", 4)
    disk.sync(descriptor)
    disk.lose_power(random.Random(seed))
    assert disk.read_file(FILE) == b"012345"
