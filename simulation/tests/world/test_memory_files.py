"""What a loss of power may leave of files and folders, and what it must."""

import random

import pytest

from simulation.world.memory_files import MemoryFile, MemoryFolder

CHANCES = [None, *map(random.Random, range(200))]


def content(file: MemoryFile) -> bytes:
    return bytes(file.buffer[: file.size])


def written(*pieces: bytes, synced: int) -> MemoryFile:
    """A file of pieces one after the other, of which the first ones were synced."""
    file = MemoryFile()
    for number, piece in enumerate(pieces):
        if number == synced:
            file.sync()
        file.write(piece, file.size)
    return file


def left_over(make, read) -> set:
    """Everything that a loss of power leaves, over all chances."""
    found = set()
    for choose in CHANCES:
        node = make()
        node.lose_power(choose)
        found.add(read(node))
    return found


def test_what_was_synced_is_kept_and_what_was_not_may_be_lost_kept_torn_or_zeros():
    found = left_over(lambda: written(b"synced", b"later", synced=1), content)
    assert all(each.startswith(b"synced") for each in found)
    assert {b"synced", b"syncedlater", b"syncedl", b"synced\0\0\0\0\0"} <= found
    assert all(each[6:].rstrip(b"\0") == b"later"[: len(each[6:].rstrip(b"\0"))] for each in found)


def test_without_a_chance_only_what_was_synced_is_left_and_the_next_loss_finds_nothing_more():
    file = written(b"synced", b"later", synced=1)
    file.lose_power(None)
    assert content(file) == b"synced"
    for choose in CHANCES:
        file.lose_power(choose)
        assert content(file) == b"synced"


def test_after_a_failed_sync_readers_see_bytes_that_no_later_sync_brings_to_the_medium():
    file = written(b"synced", b"failed", synced=1)
    file.fail_sync()
    file.sync()
    assert content(file) == b"syncedfailed"
    file.lose_power(None)
    assert content(file) == b"synced" + bytes(6)
    file.write(b"anew", 6)
    file.sync()
    file.lose_power(None)
    assert content(file) == b"syncedanew\0\0"


def test_a_file_that_was_cut_has_zeros_where_it_grows_again():
    file = written(b"0123456789", synced=0)
    file.truncate(4)
    file.truncate(8)
    assert content(file) == b"0123\0\0\0\0"


@pytest.mark.parametrize("size", [0, 255, 256, 10_000])
def test_a_file_may_be_written_behind_its_end(size):
    file = MemoryFile()
    file.write(b"x", size)
    assert content(file) == bytes(size) + b"x"


def names(folder: MemoryFolder) -> frozenset:
    return frozenset(folder.names)


def renamed() -> MemoryFolder:
    folder = MemoryFolder()
    folder.add("old", MemoryFile())
    folder.sync()
    folder.rename("old", "new")
    return folder


def test_a_rename_happens_as_a_whole_or_not_at_all():
    assert left_over(renamed, names) == {frozenset({"old"}), frozenset({"new"})}


def test_names_that_were_synced_stay_and_each_new_file_may_be_there_or_not():
    def made() -> MemoryFolder:
        folder = renamed()
        folder.sync()
        for name in ("a", "b"):
            folder.add(name, MemoryFile())
        return folder

    found = left_over(made, names)
    assert found == {frozenset({"new", *more}) for more in ((), ("a",), ("b",), ("a", "b"))}
