"""A compacted log whose segment lost its end with the power, while the next one is there: what
follows the hole is dropped, and gaps of compaction are kept (R-LOG8, R-LOG10)."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_loading import LogLoading
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.tests.log.compaction_support import CONFIG, compact, fill_keys, put, rows
from storage_engine.tests.log.support import (
    loaded_log_manager,
    make_batch,
)
from storage_engine.tests.log.transaction_support import encoded
from storage_engine.tests.sampling import seeds

ROOT, OTHER = Path("/data"), Path("/other")
TP = TopicPartition("topic", 0)


def started(
    disk: SimulatedDisk, config: LogConfig = CONFIG, folders: Sequence[Path] = (ROOT,)
) -> LogManager:
    return loaded_log_manager(folders, config, disk=disk)


def log_of(logs: LogManager) -> PartitionLog:
    return logs.get_or_create(TP)


def cut_at_a_batch(disk: SimulatedDisk, log: PartitionLog, number: int) -> int:
    """Takes the last batch of a segment, as a crash may; the offset where the segment ends now."""
    segment = log.segments.all[number]
    descriptor = disk.open_existing(segment.file.path)
    headers = list(iter_headers(memoryview(disk.pread(descriptor, segment.size, 0))))
    position, header = headers[-1]
    disk.truncate(descriptor, position)
    disk.sync(descriptor)
    return header.base_offset


def test_what_follows_a_lost_end_is_dropped():
    disk = SimulatedDisk(ROOT)
    log = log_of(started(disk))
    fill_keys(log, 5, 9)
    assert log.segment_count == 3
    end = cut_at_a_batch(disk, log, 1)
    disk.kill_process()
    again = log_of(started(disk))
    assert again.log_end_offset == end
    assert [row.offset for row in rows(again)] == list(range(end))
    # What comes now stands where the hole was, and stays there.
    assert put(again, [(b"key", b"value")]) == end
    disk.kill_process()
    assert log_of(started(disk)).log_end_offset == end + 1


def test_gaps_of_a_pass_stay_though_the_checkpoint_is_older_than_the_pass():
    disk = SimulatedDisk(ROOT)
    logs = started(disk)
    log = log_of(logs)
    logs.write_recovery_points()
    fill_keys(log, 5, 9)
    while compact(log):
        pass
    assert not {row.offset for row in rows(log)} >= set(range(log.log_end_offset))
    # Gaps between segments among them, and more that is not flushed behind.
    fill_keys(log, 5, 6)
    content = rows(log)
    disk.kill_process()
    assert rows(log_of(started(disk))) == content


def test_gaps_that_a_follower_copied_stay():
    """Its leader's passes made them, right where it begins a segment, too."""
    disk = SimulatedDisk(ROOT)
    log = log_of(started(disk))
    offsets = [0, 3, 4, 50, 51, 90, 200]
    for offset in offsets:
        log.follower_appends.append(make_batch(payload=bytes(900), base_offset=offset, epoch=0))
    assert log.segment_count > 3
    disk.kill_process()
    again = log_of(started(disk))
    found: list[int] = []
    while (piece := again.reads.read(found[-1] + 1 if found else 0, max_bytes=1)) is not None:
        found += [header.base_offset for _, header in iter_headers(piece.view())]
    assert found == offsets


def test_a_gap_too_far_for_an_index_stays():
    disk = SimulatedDisk(ROOT)
    log = log_of(started(disk))
    far = 1 << 40
    for offset in (0, 1, far, far + 1):
        log.follower_appends.append(make_batch(base_offset=offset, epoch=0))
    disk.kill_process()
    assert log_of(started(disk)).log_end_offset == far + 2


@pytest.mark.parametrize("damage", ["lost", "bad line"])
def test_without_recovery_points_every_gap_is_taken_for_one_of_compaction(damage):
    """Else all that stands behind a gap would go with a file of a few bytes."""
    disk = SimulatedDisk(ROOT)
    logs = started(disk)
    log = log_of(logs)
    fill_keys(log, 5, 9)
    while compact(log):
        pass
    content = rows(log)
    file = ROOT / "recovery-point-offset-checkpoint"
    if damage == "lost":
        disk.remove(file)
    else:
        disk.pwrite(disk.open_for_append(file), b"x", len(disk.read_file(file)))
    disk.kill_process()
    again = started(disk)
    assert rows(log_of(again)) == content
    # From here on the points are known again.
    disk.kill_process()
    assert rows(log_of(started(disk))) == content


@pytest.mark.parametrize("seed", seeds(25))
def test_power_losses_at_random_leave_no_hole(seed):
    """Whatever the medium kept of a leader's unflushed records: no offset is missing above what was
    flushed, and nothing that was flushed is gone."""
    choose = random.Random(seed)
    disk = SimulatedDisk(ROOT)
    for _ in range(4):
        logs = started(disk)
        log = log_of(logs)
        for number in range(choose.randint(3, 12)):
            log.leader_appends.append(
                _keyed(number, choose), leader_epoch=log.latest_epoch + 1, now_ms=5000
            )
            match choose.randrange(8):
                case 0:
                    log.flush()
                case 1:
                    log.flush()
                    logs.write_recovery_points()
                case 2:
                    compact(log)
        flushed = log.recovery_point
        kept = {row.key: row for row in rows(log) if row.offset < flushed}
        disk.lose_power(choose)
        again = log_of(started(disk))
        assert again.log_end_offset >= flushed
        found = rows(again)
        offsets = [row.offset for row in found if row.offset >= flushed]
        assert offsets == list(range(flushed, again.log_end_offset))
        newest = {row.key: row.offset for row in found}
        assert all(newest[key] >= row.offset for key, row in kept.items())
        again.flush()
        disk.kill_process()


def _keyed(number: int, choose: random.Random) -> memoryview:
    records = [(b"key %d" % choose.randrange(6), bytes(choose.choice([10, 400])))]
    return encoded(records * choose.randint(1, 3))


def test_a_folder_that_refuses_a_sync_while_gaps_are_told_apart_is_left_out(monkeypatch):
    """After a failed fsync nobody knows what is on the medium: no log of the folder is served."""
    disk = SimulatedDisk(ROOT)
    disk.make_directory(OTHER)
    logs = started(disk, folders=(ROOT, OTHER))
    places = {}
    for number in range(2):
        log = logs.get_or_create(TopicPartition("topic", number))
        places[log.directory.parent] = log.topic_partition
        fill_keys(log, 5, 9)
        while compact(log):
            pass
    assert places.keys() == {ROOT, OTHER}
    logs.abandon()
    # As an earlier release has left it.
    for name in ("meta.properties", "recovery-point-offset-checkpoint"):
        text = disk.read_file(ROOT / name)
        descriptor = disk.open_for_append(ROOT / name)
        lines = b"".join(line for line in text.splitlines(True) if not line.startswith(b"gaps."))
        disk.truncate(descriptor, 0)
        if name == "meta.properties":
            disk.pwrite(descriptor, lines, 0)
        else:
            disk.remove(ROOT / name)
    disk.kill_process()
    load_logs = LogLoading.load_logs

    def load_and_break(loading: LogLoading, found: Any) -> None:
        load_logs(loading, found)
        disk.broken_syncs.add(ROOT / str(places[ROOT]))

    monkeypatch.setattr(LogLoading, "load_logs", load_and_break)
    again = started(disk, folders=(ROOT, OTHER))
    assert again.dirs.working_paths == [OTHER]
    assert list(again.logs) == [places[OTHER]]
