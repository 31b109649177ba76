"""Record batches and logs for the benchmark of the log.

The bytes are random, so that no layer below can save work on them.
"""

import os
import random
from pathlib import Path

from storage_engine.core.ids import TopicPartition
from storage_engine.log.log_config import LogConfig
from storage_engine.log.partition_log import PartitionLog
from storage_engine.net.event_loop_ports import SystemClock
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    seal,
)

TP = TopicPartition("bench", 0)

_RECORD_BYTES = 100
_SEED = 20130101


def sealed_batch(size: int, seed: int = _SEED) -> memoryview:
    """Return a batch of `size` bytes with a true header and CRC; the log reads no more."""
    buffer = bytearray(HEADER_BYTES) + random.Random(seed).randbytes(size - HEADER_BYTES)
    count = max(1, size // _RECORD_BYTES)
    now_ms = SystemClock().wall_ms()
    header = BatchHeader(
        0, size - LENGTH_END, -1, MAGIC, 0, 0, count - 1, now_ms, now_ms, -1, -1, -1, count
    )
    seal(buffer, 0, header)
    return memoryview(buffer)


def sealed_batches(size: int, count: int) -> list[memoryview]:
    return [sealed_batch(size, _SEED + number) for number in range(count)]


def open_log(path: Path, *, segment_bytes: int = 1 << 30) -> PartitionLog:
    """Open an empty log, or what an unclean stop left of one."""
    config = LogConfig(segment_bytes=segment_bytes, file_delete_delay_ms=0)
    return PartitionLog.open(path / str(TP), TP, config, clock=SystemClock())


def append_all(log: PartitionLog, batches: list[memoryview], total_bytes: int) -> int:
    """Append the batches over and over, and return their number."""
    now_ms = SystemClock().wall_ms()
    number = 0
    size = 0
    while size < total_bytes:
        batch = batches[number % len(batches)]
        log.leader_appends.append(batch, leader_epoch=0, now_ms=now_ms)
        size += len(batch)
        number += 1
    return number


def evict(path: Path) -> None:
    """Take a file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
