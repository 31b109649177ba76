"""The check of closed segments, and the patch that replaces what it finds."""

import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.world.disk import CrashError, SimulatedDisk
from storage_engine.core.errors import CorruptRecordError
from storage_engine.log.cleaning.compaction_job import CancelledError
from storage_engine.log.cleaning.segment_scrub import Replacements, SegmentScrub
from storage_engine.log.files.disk import REAL_DISK
from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.tests.log.support import (
    TP,
    ManualClock,
    fill,
    loaded_log_manager,
    open_log,
    read_all,
)
from storage_engine.tests.sampling import examples

BATCHES = 75


def filled(path: Path, **options) -> PartitionLog:
    log = open_log(path, **options)
    for epoch in (0, 1, 2):
        fill(log, BATCHES // 3, epoch=epoch)
    log.flush()
    assert log.segment_count > 3
    return log


def scrubbed(log: PartitionLog, number: int = 1) -> SegmentScrub:
    scrub = log.repair.next_scrub(log.segments.all[number].base_offset)
    assert scrub is not None
    while not scrub.is_done:
        scrub.step()
    return scrub


def damage(log: PartitionLog, position: int, data: bytes, number: int = 1) -> Path:
    path = log.segments.all[number].file.path
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    return path


def repair(log: PartitionLog, scrub: SegmentScrub, good: bytes) -> None:
    """With what a replica has, which is `good`."""
    replacements = Replacements(log.disk, scrub)
    for bad in scrub.bad_ranges:
        reached = bad.start_offset
        if reached < bad.end_offset:
            reached = replacements.add(bad, reached, part_of(good, bad.start_offset))
        assert reached == bad.end_offset
        replacements.end_range()
    job = log.repair.begin(scrub, replacements)
    goes_on = True
    while goes_on:
        job.work()
        goes_on = log.cleaning.advance(job)
    replacements.remove()


def part_of(data: bytes, offset: int) -> memoryview:
    view = memoryview(data)
    for position, header in iter_headers(view):
        if header.last_offset >= offset:
            return view[position:]
    return view[:0]


def test_a_sound_log_has_no_bad_range(tmp_path):
    log = filled(tmp_path)
    for number in range(log.segment_count - 1):
        scrub = scrubbed(log, number)
        assert scrub.bad_ranges == []
        assert scrub.indexes_agree


def test_the_active_segment_is_not_checked_until_it_is_closed(tmp_path):
    log = filled(tmp_path)
    last = log.log_end_offset - 1
    assert log.repair.next_scrub(last) is None
    log.repair.close_segment_with(last)
    assert log.repair.next_scrub(last) is None or log.recovery_point == log.log_end_offset
    log.flush()
    assert log.repair.next_scrub(last) is not None


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_any_damage_is_found_and_repaired_to_the_same_bytes(tmp_path_factory, data):
    log = filled(tmp_path_factory.mktemp("log"))
    segment = log.segments.all[1]
    path = segment.file.path
    good = path.read_bytes()
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(good) - 1))
        run = data.draw(st.integers(1, 80))
        bad[at : at + run] = data.draw(st.binary(min_size=run, max_size=run))
    cut = data.draw(st.one_of(st.just(len(good)), st.integers(0, len(good))))
    bad = bad[:cut].ljust(len(good), b"\0") if data.draw(st.booleans()) else bad[:cut]
    path.write_bytes(bad[: len(good)])
    log.close()
    log = open_log(path.parent.parent, clean=True, recovery_point=log.log_end_offset)
    scrub = scrubbed(log)
    if bytes(bad[: len(good)]) == good:
        assert scrub.bad_ranges == []
        return
    assert scrub.bad_ranges
    assert all(
        a.end_offset <= b.start_offset
        for a, b in zip(scrub.bad_ranges, scrub.bad_ranges[1:], strict=False)
    )
    repair(log, scrub, good)
    assert log.segments.all[1].file.path.read_bytes() == good
    again = scrubbed(log)
    assert again.bad_ranges == [] and again.indexes_agree
    log.close()


def test_each_byte_of_a_segment_is_watched(tmp_path):
    log = filled(tmp_path)
    path = log.segments.all[1].file.path
    good = path.read_bytes()
    unseen = []
    for position in range(len(good)):
        damage(log, position, bytes([good[position] ^ 0x41]))
        if not scrubbed(log).bad_ranges:
            unseen.append(position)
        damage(log, position, good[position : position + 1])
    assert unseen == []


def test_only_the_bad_batch_is_named_and_refused_to_readers(tmp_path):
    log = filled(tmp_path)
    segment = log.segments.all[1]
    batches = [header for _, header in segment.scan()]
    positions = [position for position, _ in segment.scan()]
    damage(log, positions[2] + 70, b"\xff\xff\xff")
    scrub = scrubbed(log)
    (bad,) = scrub.bad_ranges
    assert (bad.start_offset, bad.end_offset) == (batches[2].base_offset, batches[2].next_offset)
    assert (bad.position, bad.end_position) == (positions[2], positions[3])
    log.repair.note_damage(scrub)
    with pytest.raises(CorruptRecordError, match=f"offsets {bad.start_offset} to"):
        log.reads.read(bad.start_offset, max_bytes=1)
    piece = log.reads.read(segment.base_offset, max_bytes=1 << 20)
    assert piece is not None and piece.end_offset == bad.start_offset
    assert read_all(log, bad.end_offset)[0].base_offset == bad.end_offset
    log.truncation.truncate_to(segment.base_offset)
    assert log.damaged == ()


def test_an_index_that_disagrees_is_rebuilt(tmp_path):
    log = filled(tmp_path)
    segment = log.segments.all[1]
    index = segment.offset_index.file.path
    good = index.read_bytes()
    assert good
    for wrong in (good[:3] + bytes([good[3] ^ 1]) + good[4:], good + good):
        index.write_bytes(wrong)
        scrub = scrubbed(log)
        assert scrub.bad_ranges == [] and not scrub.indexes_agree
        repair(log, scrub, b"")
        assert log.segments.all[1].offset_index.file.path.read_bytes() == good
    times = log.segments.all[1].time_index.file.path
    times.write_bytes(times.read_bytes()[:-12])
    assert not scrubbed(log).indexes_agree
    times.unlink()
    assert not scrubbed(log).indexes_agree


def test_what_does_not_fit_is_not_taken_from_a_replica(tmp_path):
    log = filled(tmp_path)
    segment = log.segments.all[1]
    good = segment.file.path.read_bytes()
    positions = [position for position, _ in segment.scan()]
    damage(log, positions[2] + 70, b"\xff\xff\xff")
    scrub = scrubbed(log)
    (bad,) = scrub.bad_ranges
    replacements = Replacements(log.disk, scrub)
    with pytest.raises(CorruptRecordError, match="damaged too"):
        replacements.add(
            bad, bad.start_offset, memoryview(segment.file.path.read_bytes())[bad.position :]
        )
    with pytest.raises(CorruptRecordError, match="lacks the offsets"):
        replacements.add(bad, bad.start_offset, memoryview(good)[bad.end_position :])
    with pytest.raises(CorruptRecordError, match="does not belong to it"):
        replacements.add(bad, bad.start_offset, memoryview(good))
    replacements.remove()
    assert not list(segment.directory.glob("*.tmp"))


def test_a_check_of_a_segment_that_is_cut_meanwhile_counts_for_nothing(tmp_path):
    log = filled(tmp_path)
    scrub = scrubbed(log)
    assert not scrub.is_outdated
    log.truncation.truncate_to(scrub.base_offset + 1)
    assert scrub.is_outdated


@pytest.mark.parametrize("choice", [None, 1, 2, 3])
def test_a_power_failure_at_any_change_of_a_repair_leaves_the_old_or_the_new_segment(choice):
    root = Path("/disk")
    steps = 0
    while True:
        disk = SimulatedDisk(root)
        log = filled(root, disk=disk)
        log.close()
        end = log.log_end_offset
        descriptor = disk.open_directory(root)
        disk.sync_names(descriptor)
        log = open_log(root, disk=disk, clean=True, recovery_point=end)
        segment = log.segments.all[1]
        path = segment.file.path
        good = disk.read_file(path)
        middle = [position for position, _ in segment.scan()][2]
        descriptor = disk.open_existing(path)
        disk.pwrite(descriptor, b"\xff\xff\xff", middle + 70)
        disk.sync(descriptor)
        damaged = disk.read_file(path)
        scrub = scrubbed(log)
        assert scrub.bad_ranges
        disk.crash_after = disk.changes + steps
        steps += 1
        try:
            repair(log, scrub, good)
        except CrashError:
            crashed = True
        else:
            crashed = False
        disk.lose_power(None if choice is None else random.Random(choice * 1000 + steps))
        log = open_log(root, disk=disk, recovery_point=end)
        assert log.log_end_offset == end
        assert disk.read_file(path) in (good, damaged)
        assert not [name for name in disk.list_names(log.directory) if name.endswith(".tmp")]
        scrub = scrubbed(log)
        if scrub.bad_ranges:
            repair(log, scrub, good)
        assert disk.read_file(path) == good
        assert [header.base_offset for header in read_all(log)] == sorted(
            header.base_offset for header in read_all(log)
        )
        log.close()
        if not crashed:
            assert steps > 10
            return


def test_a_truncation_stops_a_repair_before_it_counts(tmp_path):
    log = filled(tmp_path)
    segment = log.segments.all[1]
    good = segment.file.path.read_bytes()
    damage(log, 70, b"\xff\xff\xff")
    scrub = scrubbed(log)
    (bad,) = scrub.bad_ranges
    replacements = Replacements(log.disk, scrub)
    replacements.add(bad, bad.start_offset, memoryview(good))
    replacements.end_range()
    job = log.repair.begin(scrub, replacements)
    job.work()
    assert log.cleaning.advance(job)
    log.truncation.truncate_to(log.log_end_offset - 1)
    with pytest.raises(CancelledError):
        job.work()
    assert log.cleaning.failed(job, CancelledError()) is None
    assert scrub.segment is log.segments.all[1]
    assert not log.cleaning.is_busy


def test_a_checked_file_is_not_kept_in_the_page_cache(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        for _ in range(2):
            assert REAL_DISK.read_once(descriptor, 1 << 20, 0) == path.read_bytes()
        assert REAL_DISK.read_once(descriptor, 100, (1 << 20) - 10) == path.read_bytes()[-10:]
    finally:
        os.close(descriptor)


def test_the_time_of_the_last_check_outlives_a_stop_in_order_only(tmp_path):

    clock = ManualClock()
    manager = loaded_log_manager([tmp_path], clock=clock)
    manager.get_or_create(TP).scrubbed_ms = 777
    manager.close()
    manager = loaded_log_manager([tmp_path], clock=clock)
    assert manager.logs[TP].scrubbed_ms == 777
    manager.abandon()
    manager = loaded_log_manager([tmp_path], clock=clock)
    assert manager.logs[TP].scrubbed_ms == 0
    manager.close()
