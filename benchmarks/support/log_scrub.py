"""The costs of the scrubber: processor time of its checks, and its effect on appends beside it.

The scrubber works as in a broker, on another thread, with the pause after each piece that its usual
rate asks for.
"""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from benchmarks.support.log_batches import append_all, open_log, sealed_batches
from benchmarks.support.rounds import Result, compare, cpu_seconds
from storage_engine.core.settings.settings import BY_BROKER_KEY
from storage_engine.log.cleaning.segment_scrub import PIECE_BYTES
from storage_engine.log.partition_log import PartitionLog

LARGE_BATCH_BYTES = 128 << 10
SMALL_BATCH_BYTES = 16 << 10
_POOL = 16
_APPENDS = 4000


def measure(folder: Path, *, size: int, rounds: int) -> Iterator[Result]:
    """Yield one result after the other."""
    log = open_log(folder)
    try:
        append_all(log, sealed_batches(LARGE_BATCH_BYTES, _POOL), size)
        log.repair.close_segment_with(log.log_end_offset - 1)
        log.flush()
        yield _processor_time(log, rounds)
        yield _append_beside(folder / "beside", log, rounds)
    finally:
        log.close_without_flush()
        shutil.rmtree(log.directory)


def _processor_time(log: PartitionLog, rounds: int) -> Result:
    gigabytes = log.size_in_bytes / 1e9
    path = min(log.directory.glob("*.log"))

    def check() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            while chunk := os.read(descriptor, PIECE_BYTES):
                crc32c(chunk)
        finally:
            os.close(descriptor)

    return compare(
        "scrub, s of a processor per GB; limit: read and crc32c",
        lambda: cpu_seconds(lambda: _scrub(log)) / gigabytes,
        lambda: cpu_seconds(check) / gigabytes,
        rounds=rounds,
    )


def _scrub(log: PartitionLog, stop: threading.Event | None = None, rate: int = 0) -> None:
    scrub = log.repair.next_scrub(log.log_start_offset)
    assert scrub is not None
    while not scrub.is_done:
        size = scrub.step()
        if stop is not None and stop.wait(size / rate):
            return
    assert not scrub.bad_ranges


def _append_beside(folder: Path, scrubbed: PartitionLog, rounds: int) -> Result:
    default = BY_BROKER_KEY["log.scrub.bytes.per.second"].default
    assert isinstance(default, int)
    rate = default
    batches = sealed_batches(SMALL_BATCH_BYTES, _POOL)

    def appends() -> float:
        log = open_log(folder)
        try:
            begin = time.perf_counter()
            count = append_all(log, batches, _APPENDS * SMALL_BATCH_BYTES)
            return count / (time.perf_counter() - begin)
        finally:
            log.close_without_flush()
            shutil.rmtree(log.directory)

    def beside() -> float:
        stop = threading.Event()

        def scrub() -> None:
            while not stop.is_set():
                _scrub(scrubbed, stop, rate)

        thread = threading.Thread(target=scrub)
        thread.start()
        try:
            return appends()
        finally:
            stop.set()
            thread.join()

    return compare(
        f"append of 16 KiB batches beside a scrub of {rate // 1_000_000} MB/s, appends/s;"
        " limit: without it",
        beside,
        appends,
        rounds=rounds,
    )
