"""Every byte of every file of a broker's folder, damaged in turn: what is undamaged below the
damage is served, and what is dropped is told (R-LOG8).

Of cut and overwritten bytes every third; `HEADRACE_FAULTS=full` takes all.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simulation.world.disk import SimulatedDisk
from storage_engine.core.errors import StorageError
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_manager import LogManager
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.state.checkpoints import LOG_STARTS_FILE
from storage_engine.protocol.records.record_batch import BatchHeader, iter_headers
from storage_engine.tests.log.support import (
    append,
    loaded_log_manager,
    read_all,
)
from storage_engine.tests.log.transaction_support import end, write
from storage_engine.tests.sampling import ALL_FAULTS

ROOT = Path("/data")
TP = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=0, file_delete_delay_ms=0)
Damage = Callable[[bytes, int], bytes]

DAMAGES: dict[str, Damage] = {
    "flipped": lambda data, at: data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :],
    "cut": lambda data, at: data[:at],
    "overwritten": lambda data, at: data[:at] + bytes(len(data) - at),
}


def places(data: bytes, damage: str, *, is_clean: bool) -> range:
    """All of them, or a sample, another one for a broker that was stopped than for one killed."""
    if ALL_FAULTS:
        return range(len(data))
    step = 4 if damage == "flipped" else 6
    return range(0 if is_clean else step // 2, len(data), step)


def opened(disk: SimulatedDisk) -> LogManager:
    return loaded_log_manager([ROOT], CONFIG, disk=disk)


def files_below(disk: SimulatedDisk, folder: Path) -> Iterator[tuple[Path, bytes]]:
    for name in sorted(disk.list_names(folder)):
        if disk.is_directory(folder / name):
            yield from files_below(disk, folder / name)
        else:
            yield folder / name, disk.read_file(folder / name)


def written(*, is_clean: bool) -> tuple[dict[Path, bytes], PartitionLog]:
    """The files that a broker leaves, and the log as it was."""
    disk = SimulatedDisk(ROOT)
    manager = opened(disk)
    log = manager.get_or_create(TP)
    append(log, 2, producer=(7, 0, 0), timestamp_ms=1000)
    write(log, 8, (b"k", b"aborted"))
    end(log, 8, commits=False)
    while log.segment_count < 3:
        append(log, payload=bytes(60), epoch=1, timestamp_ms=1000 + log.log_end_offset)
    log.flush()
    log.retention.advance_log_start(1)
    manager.write_recovery_points()
    manager.write_log_starts()
    manager.checkpoint_high_watermarks({TP: 3})
    append(log, 3, epoch=2)
    if is_clean:
        manager.close()
    files = dict(files_below(disk, ROOT))
    return files, log


def disk_of(files: dict[Path, bytes]) -> SimulatedDisk:
    disk = SimulatedDisk(ROOT)
    for path, data in files.items():
        disk.make_directory(path.parent)
        descriptor = disk.open_for_append(path)
        disk.pwrite(descriptor, data, 0)
        disk.close(descriptor)
    return disk


def headers_of(files: dict[Path, bytes]) -> list[tuple[Path, int, BatchHeader]]:
    """Every batch with its file and where it ends."""
    found = []
    for path in sorted(files):
        if path.suffix == ".log":
            for position, header in iter_headers(memoryview(files[path])):
                found.append((path, position + header.size_in_bytes, header))
    return found


def kind_of(path: Path) -> str:
    return path.suffix if path.parent != ROOT and path.suffix else path.name


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_damaged_file_beside_the_records_costs_no_record(damage, is_clean, caplog):
    files, _ = written(is_clean=is_clean)
    whole = opened(disk_of(files)).logs[TP]
    expected = read_all(whole)
    aborted = whole.reads.aborted_transactions(0, whole.log_end_offset)
    assert aborted
    kinds = {kind_of(path) for path in files}
    assert kinds >= {".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"}
    for path, data in files.items():
        if path.suffix == ".log":
            continue
        for at in places(data, damage, is_clean=is_clean):
            where = f"{path} {damage} at {at}"
            caplog.clear()
            damaged = DAMAGES[damage](data, at)
            disk = disk_of(files | {path: damaged})
            try:
                log = opened(disk).logs[TP]
            except StorageError as error:
                assert path.name == "meta.properties" and str(ROOT) in str(error), where
                continue
            start = log.log_start_offset
            if path.name == LOG_STARTS_FILE:
                # Without its line the log begins with its oldest segment.
                is_told = f"checkpoint damaged, read without it file={path}" in caplog.text
                assert start == 1 or (start == 0 and is_told), where
                assert is_told or damaged == data, where
                assert log.log_end_offset == whole.log_end_offset, where
            else:
                assert start == 1 and log.log_end_offset == whole.log_end_offset, where
                assert log.reads.aborted_transactions(0, log.log_end_offset) == aborted, where
                if path.suffix == ".txnindex" and is_clean:
                    is_told = f"index damaged, rebuilding file={path}" in caplog.text
                    assert is_told == (damaged != data), where
                    assert disk.read_file(path) == data, where
            assert read_all(log) == expected, where
            following = log.log_end_offset
            assert append(log, epoch=log.latest_epoch + 1).base_offset == following, where


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_records_take_nothing_along_that_is_below_them(damage, caplog):
    files, _ = written(is_clean=False)
    files = {path: data for path, data in files.items() if "recovery-point" not in path.name}
    batches = headers_of(files)
    for path, data in files.items():
        if path.suffix != ".log":
            continue
        for at in places(data, damage, is_clean=False):
            where = f"{path} {damage} at {at}"
            damaged = DAMAGES[damage](data, at)
            caplog.clear()
            log = opened(disk_of(files | {path: damaged})).logs[TP]
            below = [h for p, ends, h in batches if p < path or (p == path and ends <= at)]
            found = read_all(log)
            wanted = [header for header in below if header.next_offset > log.log_start_offset]
            assert found[: len(wanted)] == wanted, where
            assert log.log_end_offset >= (below[-1].next_offset if below else 0), where
            if len(found) < len([h for _, _, h in batches if h.next_offset > 1]):
                is_told = "end_offset=" in caplog.text and "dropped_bytes=" in caplog.text
                # A file that ends where a batch ends does not look damaged.
                ends = {0, *(end for other, end, _ in batches if other == path)}
                ends_well = damage == "cut" and at in ends
                assert is_told or ends_well, where
            following = log.log_end_offset
            assert append(log, epoch=log.latest_epoch + 1).base_offset == following, where
