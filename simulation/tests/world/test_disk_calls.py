"""A disk in memory: its crashes, its failing folders, and what a real disk would refuse."""

import errno
from pathlib import Path

import pytest

from simulation.world.disk import CrashError, SimulatedDisk

ROOT = Path("/data")
FILE = ROOT / "file"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(ROOT)


def written(disk: SimulatedDisk, content: bytes, path: Path = FILE) -> int:
    descriptor = disk.open_for_append(path)
    disk.pwrite(descriptor, content, 0)
    return descriptor


def test_a_killed_process_loses_its_descriptors_and_locks_and_nothing_else(disk):
    descriptor = written(disk, b"kept")
    assert disk.lock(ROOT / "lock") is not None
    assert disk.lock(ROOT / "lock") is None, "another one holds it"
    disk.kill_process()
    assert disk.read_file(FILE) == b"kept"
    assert disk.lock(ROOT / "lock") is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.pread(descriptor, 4, 0)


def test_without_power_a_file_needs_its_bytes_and_its_name_to_be_synced(disk):
    for name, syncs_name in (("named", True), ("nameless", False)):
        descriptor = written(disk, b"synced", ROOT / name)
        disk.sync(descriptor)
        if syncs_name:
            disk.sync_names(disk.open_directory(ROOT))
    disk.pwrite(disk.open_existing(ROOT / "named"), b"later", 6)
    boot = disk.boot_id()
    disk.lose_power()
    assert disk.list_names(ROOT) == ["named"]
    assert disk.read_file(ROOT / "named") == b"synced"
    assert disk.boot_id() != boot


def test_the_change_at_which_the_process_dies_is_made_and_none_after_it(disk):
    descriptor = written(disk, b"one")
    disk.crash_after = disk.changes + 1
    with pytest.raises(CrashError):
        disk.pwrite(descriptor, b"two", 3)
    assert disk.is_dead
    with pytest.raises(CrashError):
        disk.remove(FILE)
    disk.kill_process()
    assert not disk.is_dead and disk.read_file(FILE) == b"onetwo"


def test_a_sync_at_which_the_process_dies_has_done_nothing(disk):
    descriptor = written(disk, b"lost")
    disk.sync_names(disk.open_directory(ROOT))
    disk.crash_after = disk.changes + 1
    with pytest.raises(CrashError):
        disk.sync(descriptor)
    disk.lose_power()
    assert disk.read_file(FILE) == b""


def test_a_full_folder_takes_what_has_room_and_replaces_bytes_in_their_place(disk):
    disk.room[ROOT] = 6
    descriptor = disk.open_for_append(FILE)
    assert disk.pwrite(descriptor, b"12345678", 0) == 6
    with pytest.raises(OSError, match="No space left"):
        disk.pwrite(descriptor, b"x", 6)
    assert disk.pwrite(descriptor, b"ab", 0) == 2
    assert disk.read_file(FILE) == b"ab3456"


def test_a_broken_folder_fails_in_every_call_and_others_do_not(disk):
    for name in ("good", "bad"):
        disk.make_directory(ROOT / name)
    descriptor = written(disk, b"x", ROOT / "bad" / "file")
    disk.broken.add(ROOT / "bad")
    for call in (
        lambda: disk.pread(descriptor, 1, 0),
        lambda: disk.pwrite(descriptor, b"y", 0),
        lambda: disk.sync(descriptor),
        lambda: disk.open_for_append(ROOT / "bad" / "other"),
    ):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EIO
    written(disk, b"x", ROOT / "good" / "file")


def test_a_sync_that_fails_is_remembered_and_its_bytes_are_not_on_the_medium(disk):
    descriptor = written(disk, b"failed")
    disk.sync_names(disk.open_directory(ROOT))
    disk.broken_syncs.add(ROOT)
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync(descriptor)
    assert disk.refused_syncs == [FILE]
    disk.broken_syncs.clear()
    disk.sync(descriptor)
    disk.lose_power()
    assert disk.read_file(FILE) == bytes(6)


def test_a_process_out_of_descriptors_is_refused_the_call_that_takes_one(disk):
    disk.short_at = range(disk.opens + 2, disk.opens + 3)
    written(disk, b"x")
    with pytest.raises(OSError, match="Too many open files"):
        disk.open_existing(FILE)
    disk.open_existing(FILE)
