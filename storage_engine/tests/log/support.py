"""Shared by the tests of the log: a clock by hand, batches with any header, short ways to open and
read a log.
"""

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

from simulation.world.requests import make_batch as make_batch
from storage_engine.core.ids import TopicPartition
from storage_engine.log.dirs.log_manager import LogManager, LogManagerSettings
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.recovery.log_loader import LogStart
from storage_engine.log.segments.segment_slice import SegmentSlice
from storage_engine.log.segments.time_search import Search, TimestampedOffset
from storage_engine.protocol.records.record_batch import (
    BatchHeader,
    iter_headers,
    read_header,
)

TP = TopicPartition("topic", 0)
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200, file_delete_delay_ms=0)
"""Many segments and index entries from few batches."""


class SavedOffsets:
    """Checkpoint files of one log; `write` stands for what writes them."""

    def __init__(self, write: Callable[[], object], recovery_point: int | None = None) -> None:
        self._write = write
        self._recovery_point = recovery_point

    def write(self) -> None:
        self._write()

    def saved_recovery_point(self) -> int | None:
        return self._recovery_point


class ManualClock:
    """Time that stands still until moved."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def join(*batches: memoryview) -> memoryview:
    return memoryview(bytearray(b"".join(batches)))


def open_log(path: Path, config: LogConfig = SMALL, **options) -> PartitionLog:
    """The options are those of `PartitionLog.open` and the fields of `LogStart`."""
    options.setdefault("clock", ManualClock())
    start = {
        field.name: options.pop(field.name) for field in fields(LogStart) if field.name in options
    }
    return PartitionLog.open(path / str(TP), TP, config, LogStart(**start), **options)


def new_log_manager(
    log_dirs: Sequence[Path], config: LogConfig, *, broker_id: int = 1, **options
) -> LogManager:
    """The options are those of `LogManager`."""
    settings = LogManagerSettings(log_dirs=log_dirs, broker_id=broker_id, default_config=config)
    options.setdefault("clock", ManualClock())
    return LogManager(settings, **options)


def loaded_log_manager(
    log_dirs: Sequence[Path], config: LogConfig = SMALL, **options
) -> LogManager:
    """Return a log manager that has opened all of its logs."""
    manager = new_log_manager(log_dirs, config, **options)
    manager.load("cluster")
    return manager


def append(log: PartitionLog, count: int = 1, *, epoch: int = 0, now_ms: int = 5000, **batch):
    return log.leader_appends.append(make_batch(count, **batch), leader_epoch=epoch, now_ms=now_ms)


def fill(log: PartitionLog, batches: int, *, epoch: int = 0) -> None:
    """Appends batches of one to three records, payloads and times that tell their base offset."""
    for number in range(batches):
        offset = log.log_end_offset
        append(
            log,
            1 + number % 3,
            epoch=epoch,
            payload=struct.pack(">q", offset) * 8,
            timestamp_ms=1000 + offset,
        )


def read_all(
    log: PartitionLog, offset: int | None = None, max_bytes: int = 500
) -> list[BatchHeader]:
    """Headers of all batches from `offset` (default: the log's start) to the end, read piece by
    piece.
    """
    position = log.log_start_offset if offset is None else offset
    headers: list[BatchHeader] = []
    while (piece := log.reads.read(position, max_bytes=max_bytes)) is not None:
        view = piece.view()
        assert len(view) == len(piece)
        found = [header for _, header in iter_headers(view)]
        assert sum(header.size_in_bytes for header in found) == len(piece)
        assert piece.end_offset > position
        headers += found
        position = piece.end_offset
    return headers


def read_one(log: PartitionLog, offset: int, max_bytes: int = 1) -> SegmentSlice:
    """A read that must bring something; by default just the batch with `offset`."""
    piece = log.reads.read(offset, max_bytes=max_bytes)
    assert piece is not None
    return piece


def offsets_of(headers: list[BatchHeader]) -> list[int]:
    """Every offset the batches have."""
    return [
        offset for header in headers for offset in range(header.base_offset, header.next_offset)
    ]


def segment_files(path: Path, suffix: str = ".log") -> list[Path]:
    return sorted((path / str(TP)).glob("*" + suffix))


def state_of(log):
    """All of it that an append changes."""
    producers = [
        (entry.producer_id, entry.epoch, list(entry.batches))
        for entry in sorted(log.producer_state, key=lambda entry: entry.producer_id)
    ]
    files = {
        path.name: path.read_bytes()
        for path in sorted(log.directory.iterdir())
        if path.suffix == ".log"
    }
    segments = [
        (
            segment.base_offset,
            segment.size,
            segment.next_offset,
            segment.largest_timestamp(),
            segment.max_timestamp_offset,
            segment.indexes_full,
            segment._bytes_since_index,
            [segment.offset_index.entry(number) for number in range(len(segment.offset_index))],
            [segment.time_index.entry(number) for number in range(len(segment.time_index))],
        )
        for segment in log.segments
    ]
    return log.log_end_offset, producers, files, segments, read_all(log)


def killed_when_told(module: str, *args: object, told_bytes: int) -> bytes:
    """Return the output of a child that runs the module, and is killed after that many bytes."""
    child = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, args)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert child.stdout is not None
    output = b""
    while len(output) < told_bytes:
        piece = os.read(child.stdout.fileno(), 4096)
        assert piece, "the child stopped by itself"
        output += piece
    child.send_signal(signal.SIGKILL)
    output += child.stdout.read()
    child.wait()
    child.stdout.close()
    return output


def run_search(search: Search) -> TimestampedOffset | None:
    """Return the result of a search that is not interrupted."""
    result = None
    try:
        while True:
            work = search.send(result)
            result = None if work is None else work()
    except StopIteration as end:
        found: TimestampedOffset | None = end.value
        return found


def check_indexes(path) -> int:
    """Every entry of every index file names a batch of its log; the number of entries."""
    entries = 0
    for log_file in segment_files(path):
        base = int(log_file.stem)
        data = log_file.read_bytes()
        ends: dict[int, int] = {}
        position = 0
        while position < len(data):
            header = read_header(data, position)
            ends[header.last_offset] = position
            position += header.size_in_bytes
        index = log_file.with_suffix(".index").read_bytes()
        for relative, at in struct.iter_unpack(">ii", index):
            assert ends[base + relative] == at
            entries += 1
        times = log_file.with_suffix(".timeindex").read_bytes()
        latest = -1
        for timestamp, relative in struct.iter_unpack(">qi", times):
            assert read_header(data, ends[base + relative]).max_timestamp == timestamp
            assert timestamp > latest
            latest = timestamp
            entries += 1
    return entries
