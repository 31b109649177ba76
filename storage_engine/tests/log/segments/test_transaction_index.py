"""The index of aborted transactions: its bytes, and that damage shows no aborted record. KIP-98."""

import struct

import pytest
from crc32c import crc32c

from storage_engine.tests.log.support import (
    SMALL,
    fill,
    open_log,
    read_all,
    segment_files,
)
from storage_engine.tests.log.transaction_support import (
    abort,
    aborted_of,
    filled,
    seen,
    transactions_of,
    values,
    write,
)

ENTRY = struct.Struct(">hqqqq")


KEY = (b"k", b"v")


def test_entries_of_the_index_are_those_of_the_format(tmp_path):
    log = open_log(tmp_path)
    write(log, 1, KEY)
    write(log, 2, KEY, KEY)
    abort(log, 2)
    abort(log, 1)
    log.close()
    (path,) = segment_files(tmp_path, ".txnindex")
    data = path.read_bytes()
    assert list(ENTRY.iter_unpack(data[:68])) == [(0, 2, 1, 3, 0), (0, 1, 0, 4, 5)]
    assert list(ENTRY.iter_unpack(data[68:])) == [(0x7FFF, 2, crc32c(data[:68]), 0, 0)]


def test_an_aborted_transaction_is_found_from_its_first_offset_to_its_marker(tmp_path):
    log = open_log(tmp_path)
    first = write(log, 1, KEY)
    for _ in range(60):
        write(log, None, KEY, KEY)
    write(log, 1, KEY)
    marker = abort(log, 1)
    fill(log, 40)
    assert log.segment_count > 5
    for start in range(0, marker + 1):
        (found,) = log.reads.aborted_transactions(start, start + 1)
        assert (found.first_offset, found.last_offset) == (first, marker)
    assert log.reads.aborted_transactions(marker + 1, log.log_end_offset) == []


def damage_none(paths):
    pass


def damage_remove(paths):
    for path in paths:
        path.unlink()


def damage_cut(paths):
    for path in paths:
        path.write_bytes(path.read_bytes()[:-1])


def damage_garbage(paths):
    for path in paths:
        path.write_bytes(b"\x55" * path.stat().st_size)


def damage_version(paths):
    for path in paths:
        data = path.read_bytes()
        if data:
            path.write_bytes(b"\0\1" + data[2:])


def damage_another(paths):
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "damage",
    [damage_none, damage_remove, damage_cut, damage_garbage, damage_version, damage_another],
)
def test_whatever_happens_to_the_index_files_no_aborted_record_is_seen(tmp_path, damage, clean):
    log = filled(open_log(tmp_path))
    expected, known, entries = seen(log), transactions_of(log), aborted_of(log)
    assert log.segment_count > 3 and len(entries) > 6
    log.close()
    damage([path for path in segment_files(tmp_path, ".txnindex") if path.stat().st_size])
    again = open_log(tmp_path, clean=clean, recovery_point=log.log_end_offset)
    assert transactions_of(again) == known
    assert seen(again) == expected
    assert aborted_of(again) == entries


def test_a_log_of_a_version_without_transaction_indexes_is_opened(tmp_path):
    log = open_log(tmp_path)
    fill(log, 60)
    log.close()
    damage_remove(segment_files(tmp_path, ".txnindex"))
    again = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
    assert len(read_all(again)) == 60
    assert again.reads.aborted_transactions(0, log.log_end_offset) == []


def test_the_index_of_a_deleted_segment_goes_with_it(tmp_path):
    log = filled(open_log(tmp_path))
    count = len(segment_files(tmp_path, ".txnindex"))
    log.retention.advance_log_start(log.log_end_offset - 2)
    left = segment_files(tmp_path, ".txnindex")
    assert len(left) < count - 1
    deleted = {path.name.split(".")[0] for path in segment_files(tmp_path, ".deleted")}
    assert {f"{stem}.txnindex" for stem in deleted}.isdisjoint(path.name for path in left)
    names = [path.name for path in segment_files(tmp_path, ".deleted")]
    assert sum(".txnindex." in name for name in names) == len(deleted)
    log.segments.take_deleted_files(10**9)


def test_a_crash_between_flush_and_roll_loses_no_entry(tmp_path):
    """`flush.before.ack` flushes up to the end; the roll that follows flushes nothing."""
    from simulation.world.disk import SimulatedDisk

    disk = SimulatedDisk(tmp_path)
    log = open_log(tmp_path, SMALL, disk=disk)
    write(log, 1, KEY)
    abort(log, 1)
    write(log, None, (b"k", b"plain"))
    log.flush()
    recovery_point = log.recovery_point
    log.roll(log.log_end_offset)
    log.close_without_flush()
    disk.lose_power()
    again = open_log(tmp_path, SMALL, disk=disk, recovery_point=recovery_point)
    assert values(seen(again)) == [b"plain"]
    assert len(aborted_of(again)) == 1
