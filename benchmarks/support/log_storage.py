"""The costs of a log in one process: appends, reads, size, recovery, and reads from the disk.

Both sides of a comparison move the same bytes, to or from files of their own in one folder. Rates
are per second of processor time, except for reads from the disk.
"""

import os
import random
import shutil
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from benchmarks.support.log_batches import append_all, evict, open_log, sealed_batches
from benchmarks.support.rounds import Goal, Result, Step, compare, cpu_seconds, seconds
from storage_engine.log.files.segment_files import ColdBytesError
from storage_engine.log.partition_log import PartitionLog

APPEND_GOAL = Goal(least=0.6)
SIZE_GOAL = Goal(least=0.9, most=1.1)
"""The project's own goals."""

LARGE_BATCH_BYTES = 128 << 10
SMALL_BATCH_BYTES = 1 << 10
READ_BYTES = 1 << 20
SMALL_LOG_BYTES = 10 << 20
SMALL_SEGMENT_BYTES = 1 << 20

_LOOKUP_BATCH_BYTES = 16 << 10
_CHUNK_BYTES = 128 << 10
_POOL = 16
"""Different batches, appended in turn: together larger than the CPU's inner caches."""
_SEED = 7


class Plan(NamedTuple):
    """The amount of work of the benchmark."""

    folder: Path
    bytes_a_round: int
    large_log_bytes: int
    rounds: int


def measure(plan: Plan) -> Iterator[Result]:
    """Yield one result after the other; each measurement removes its files before the next."""
    yield from _appends(plan)
    yield from _reads(plan)
    for segment_bytes in (1 << 30, SMALL_SEGMENT_BYTES):
        yield from _size_of_the_log(plan, segment_bytes)
    yield _recovery(plan)
    yield from _cold_reads(plan)


# -- appends ---------------------------------------------------------------------------------------


def _appends(plan: Plan) -> Iterator[Result]:
    large = sealed_batches(LARGE_BATCH_BYTES, _POOL)
    ours = _log_append(plan, large, plan.bytes_a_round, 1e6)
    for limit, name, goal in (
        (_file_append(plan, large, writev=True), "writev to a new file", APPEND_GOAL),
        (_file_append(plan, large, writev=False), "os.write to a new file", None),
        (_copy(large, plan.bytes_a_round), "memcpy", None),
    ):
        what = f"append of 128 KiB batches, MB/s; limit: {name}"
        yield compare(what, ours, limit, rounds=plan.rounds, goal=goal)
    small = sealed_batches(SMALL_BATCH_BYTES, _POOL)
    total = plan.bytes_a_round // 8
    yield compare(
        "append of 1 KiB batches, appends/s; limit: writev to a new file",
        _log_append(plan, small, total, SMALL_BATCH_BYTES),
        _file_append(plan, small, writev=True, total=total, unit=SMALL_BATCH_BYTES),
        rounds=plan.rounds,
    )


def _log_append(plan: Plan, batches: list[memoryview], total: int, unit: float) -> Step:
    """Return the step that appends to a new log, as a broker does for a producer."""

    def step() -> float:
        log = open_log(plan.folder)
        try:
            taken = cpu_seconds(lambda: append_all(log, batches, total))
        finally:
            log.close_without_flush()
            shutil.rmtree(log.directory)
        return total / unit / taken

    return step


def _file_append(
    plan: Plan,
    batches: list[memoryview],
    *,
    writev: bool,
    total: int | None = None,
    unit: float = 1e6,
) -> Step:
    path = plan.folder / "raw"
    size = plan.bytes_a_round if total is None else total
    count = size // len(batches[0])

    def step() -> float:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

        def write() -> None:
            for number in range(count):
                if writev:
                    os.writev(descriptor, [batches[number % _POOL]])
                else:
                    os.write(descriptor, batches[number % _POOL])

        try:
            return size / unit / cpu_seconds(write)
        finally:
            os.close(descriptor)
            path.unlink()

    return step


def _copy(batches: list[memoryview], total: int) -> Step:
    """Return the step that copies into one buffer of the whole size, over and over."""
    target = memoryview(bytearray(total))
    size = len(batches[0])

    def copy() -> None:
        for number in range(total // size):
            target[number * size : (number + 1) * size] = batches[number % _POOL]

    return lambda: total / 1e6 / cpu_seconds(copy)


# -- reads -----------------------------------------------------------------------------------------


def _reads(plan: Plan) -> Iterator[Result]:
    log = open_log(plan.folder)
    try:
        append_all(log, sealed_batches(LARGE_BATCH_BYTES, _POOL), plan.bytes_a_round)
        memory = memoryview(bytearray(log.size_in_bytes))
        target = memoryview(bytearray(READ_BYTES))

        def read() -> None:
            for piece in _pieces(log):
                target[: len(piece)] = piece

        def copy() -> None:
            for at in range(0, len(memory), READ_BYTES):
                piece = memory[at : at + READ_BYTES]
                target[: len(piece)] = piece

        def probe() -> None:
            offset = 0
            while (found := log.reads.read(offset, max_bytes=READ_BYTES, wait=False)) is not None:
                found.is_warm()
                offset = found.end_offset

        megabytes = log.size_in_bytes / 1e6
        yield compare(
            "read of 1 MiB from the page cache, copied out once, MB/s; limit: memcpy",
            lambda: megabytes / cpu_seconds(read),
            lambda: megabytes / cpu_seconds(copy),
            rounds=plan.rounds,
        )
        reads = log.size_in_bytes / READ_BYTES
        yield compare(
            "lookup of 1 MiB with the look at the page cache, us; limit: a copy of it",
            lambda: cpu_seconds(probe) / reads * 1e6,
            lambda: cpu_seconds(copy) / reads * 1e6,
            rounds=plan.rounds,
        )
    finally:
        _drop(log)


def _pieces(log: PartitionLog) -> Iterator[memoryview]:
    offset = 0
    while (found := log.reads.read(offset, max_bytes=READ_BYTES)) is not None:
        yield found.view()
        offset = found.end_offset


# -- size ------------------------------------------------------------------------------------------


def _size_of_the_log(plan: Plan, segment_bytes: int) -> Iterator[Result]:
    """Compare the work on a large log and on a small one, by turns."""
    batches = sealed_batches(_LOOKUP_BATCH_BYTES, _POOL)
    large = open_log(plan.folder / "large", segment_bytes=segment_bytes)
    small = open_log(plan.folder / "small", segment_bytes=segment_bytes)
    try:
        append_all(large, batches, plan.large_log_bytes)
        append_all(small, batches, min(SMALL_LOG_BYTES, plan.large_log_bytes))
        sizes = f"{large.size_in_bytes >> 20} MiB against {small.size_in_bytes >> 20} MiB"
        where = f"segments of {segment_bytes >> 20} MiB, {sizes}"
        for what, work in (
            ("read of 16 KiB at random offsets", _read_at_random),
            ("lookup of 1 MiB at random offsets", _look_up_at_random),
            ("steady reads of 1 MiB", _read_steadily),
            ("append", _append_some),
        ):
            yield compare(
                f"{what}, us; {where}",
                partial(work, large, batches),
                partial(work, small, batches),
                rounds=max(plan.rounds, 7),
                goal=SIZE_GOAL,
            )
    finally:
        _drop(large)
        _drop(small)


_LOOKUPS = 300


def _read_at_random(log: PartitionLog, _batches: list[memoryview]) -> float:
    offsets = _random_offsets(log)

    def read() -> None:
        for offset in offsets:
            found = log.reads.read(offset, max_bytes=_LOOKUP_BATCH_BYTES)
            assert found is not None
            found.read_bytes()

    return cpu_seconds(read) / _LOOKUPS * 1e6


def _look_up_at_random(log: PartitionLog, _batches: list[memoryview]) -> float:
    offsets = _random_offsets(log)

    def look_up() -> None:
        for offset in offsets:
            log.reads.read(offset, max_bytes=READ_BYTES)

    return cpu_seconds(look_up) / _LOOKUPS * 1e6


def _random_offsets(log: PartitionLog) -> list[int]:
    choose = random.Random(_SEED)
    return [choose.randrange(log.log_end_offset) for _ in range(_LOOKUPS)]


def _read_steadily(log: PartitionLog, _batches: list[memoryview]) -> float:
    """Read the newest part of the log, half as much as a small log has."""
    target = memoryview(bytearray(READ_BYTES))
    offset = log.log_end_offset - log.log_end_offset * SMALL_LOG_BYTES // (2 * log.size_in_bytes)
    reads = 0

    def read() -> None:
        nonlocal offset, reads
        while (found := log.reads.read(max(0, offset), max_bytes=READ_BYTES)) is not None:
            target[: len(found)] = found.view()
            offset = found.end_offset
            reads += 1

    taken = cpu_seconds(read)
    return taken / max(1, reads) * 1e6


def _append_some(log: PartitionLog, batches: list[memoryview]) -> float:
    """Append to the end, and truncate afterwards, so that the sizes stay."""
    end = log.log_end_offset
    count = 0

    def append() -> None:
        nonlocal count
        count = append_all(log, batches, SMALL_LOG_BYTES // 4)

    taken = cpu_seconds(append)
    log.truncation.truncate_to(end)
    return taken / count * 1e6


# -- recovery --------------------------------------------------------------------------------------


def _recovery(plan: Plan) -> Result:
    log = open_log(plan.folder)
    append_all(log, sealed_batches(LARGE_BATCH_BYTES, _POOL), plan.bytes_a_round)
    size = log.size_in_bytes
    path = next(log.directory.glob("*.log"))
    log.close_without_flush()

    def recover() -> float:
        opened: list[PartitionLog] = []
        taken = cpu_seconds(lambda: opened.append(open_log(plan.folder)))
        opened[0].close_without_flush()
        assert opened[0].recovered_bytes == size
        return size / 1e6 / taken

    def check() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            crc = 0
            while chunk := os.read(descriptor, _CHUNK_BYTES):
                crc = crc32c(chunk, crc)
        finally:
            os.close(descriptor)

    try:
        return compare(
            "recovery, MB/s; limit: read and crc32c",
            recover,
            lambda: size / 1e6 / cpu_seconds(check),
            rounds=plan.rounds,
        )
    finally:
        shutil.rmtree(log.directory)


# -- cold reads ------------------------------------------------------------------------------------

_COLD_READS = 20


def _cold_reads(plan: Plan) -> Iterator[Result]:
    """Measure how long a fetch of evicted bytes holds an event loop at a stretch when a thread
    waits for the disk, and when the loop itself waits: the median of some fetches.
    """
    log = open_log(plan.folder)
    try:
        append_all(log, sealed_batches(_LOOKUP_BATCH_BYTES, _POOL), plan.bytes_a_round)
        log.flush()
        path = next(log.directory.glob("*.log"))
        choose = random.Random(_SEED)
        target = memoryview(bytearray(READ_BYTES))

        def offsets() -> list[int]:
            evict(path)
            return [choose.randrange(log.log_end_offset) for _ in range(_COLD_READS)]

        def held() -> float:
            taken = [_held_by_a_cold_read(log, offset) for offset in offsets()]
            return statistics.median(taken) * 1e3

        def blocked() -> float:
            taken: list[float] = []
            for offset in offsets():

                def read(offset: int = offset) -> None:
                    found = log.reads.read(offset, max_bytes=READ_BYTES)
                    assert found is not None
                    target[: len(found)] = found.view()

                taken.append(seconds(read))
            return statistics.median(taken) * 1e3

        yield compare(
            "cold fetch of 1 MiB, hold of the event loop, ms; limit: a wait for the disk",
            held,
            blocked,
            rounds=plan.rounds,
        )
    finally:
        _drop(log)


def _held_by_a_cold_read(log: PartitionLog, offset: int) -> float:
    """Return the longest of the tries; the loads in between are a thread's in a broker."""
    worst = 0.0
    while True:
        started = time.perf_counter()
        try:
            found = log.reads.read(offset, max_bytes=READ_BYTES, wait=False)
            assert found is not None
            job = None if found.is_warm() else found.load_job()
        except ColdBytesError as cold:
            job = cold.load_job(READ_BYTES)
        worst = max(worst, time.perf_counter() - started)
        if job is None:
            return worst
        job.run()


def _drop(log: PartitionLog) -> None:
    log.close_without_flush()
    shutil.rmtree(log.directory)
