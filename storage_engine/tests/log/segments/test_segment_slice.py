"""Where a read of limited size ends, found with few reads, and what is copied of it. R-LOG3."""

import signal
import struct
import subprocess
import sys

import pytest

from storage_engine.core.errors import (
    CorruptRecordError,
)
from storage_engine.log.files.disk import REAL_DISK, RealDisk
from storage_engine.log.log_config import LogConfig
from storage_engine.net.limits import SMALL_WRITE_BYTES
from storage_engine.tests.log.support import (
    append,
    open_log,
    segment_files,
)

LENGTH_AT = 8


ONE_SEGMENT = LogConfig(index_interval_bytes=1000)


class CountingDisk(RealDisk):
    """The real one, with the headers that were read."""

    def __init__(self) -> None:
        self.reads = 0

    def read_cached(self, descriptor: int, count: int, position: int) -> bytearray | None:
        self.reads += 1
        return REAL_DISK.read_cached(descriptor, count, position)


def test_a_read_of_any_size_ends_at_the_last_whole_batch_however_many_have_an_index_entry(tmp_path):
    log = open_log(tmp_path, ONE_SEGMENT)
    ends = [0]
    for number in range(60):
        append(log, 1, payload=bytes(20 + number * 37 % 900))
        ends.append(log.segments.active.size)
    for start in (0, 7, 31):
        exact = [end - ends[start] for end in ends[start + 1 :]]
        for limit in (*exact, *range(1, exact[-1], 397)):
            found = log.reads.read(start, max_bytes=limit, wait=False)
            whole = [end for end in ends if ends[start] < end <= ends[start] + limit]
            assert ends[start] + len(found) == (whole or [ends[start + 1]])[-1]
            assert ends[found.end_offset] == ends[start] + len(found)


def test_the_end_of_a_read_of_large_batches_is_found_with_one_look_at_a_header(tmp_path):
    disk = CountingDisk()
    log = open_log(tmp_path, ONE_SEGMENT, disk=disk)
    for _ in range(30):
        append(log, 1, payload=bytes(5000))
    size = log.segments.active.size // 30
    first = log.reads.read(0, max_bytes=10 * size + 5, wait=False)
    assert first.end_offset == 10
    disk.reads = 0
    second = log.reads.read(10, max_bytes=10 * size + 5, wait=False)
    assert (second.end_offset, disk.reads) == (20, 1)


def test_a_batch_at_the_end_of_a_read_whose_length_is_damaged_is_not_taken_for_whole(tmp_path):
    log = open_log(tmp_path, ONE_SEGMENT)
    for _ in range(30):
        append(log, 1, payload=bytes(5000))
    size = log.segments.active.size // 30
    with segment_files(tmp_path)[0].open("r+b") as file:
        file.seek(10 * size + LENGTH_AT)
        file.write(struct.pack(">i", 1 << 30))
    with pytest.raises(CorruptRecordError, match=f"no intact batch at byte {10 * size}"):
        log.reads.read(0, max_bytes=10 * size + 5, wait=False)


JOINS_A_SLICE = """
import os, sys
from pathlib import Path
from storage_engine.core.errors import LogStorageError
from storage_engine.net.frames import joined
from storage_engine.tests.log.support import append, open_log, read_one
from storage_engine.log.log_config import LogConfig

log = open_log(Path(sys.argv[1]), LogConfig())
append(log, payload=bytes(int(sys.argv[2])))
slice = read_one(log, 0)
joined([slice])
# As a page that can't be read: beyond the end of the file there is none.
os.truncate(slice._source.file.path, 4096)
try:
    joined([b"header", slice])
except LogStorageError as error:
    print("refused:", error)
"""


def test_a_small_answer_from_a_page_that_can_not_be_read_ends_no_broker(tmp_path):
    """Small answers are joined before they are sent."""
    for size in (100 << 10 >> 3, SMALL_WRITE_BYTES - 1000):
        command = [sys.executable, "-c", JOINS_A_SLICE, str(tmp_path / str(size)), str(size)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ended.returncode != -signal.SIGBUS
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith("refused: ")


def test_large_slices_are_views_of_the_file(log):
    payload = bytes(range(256)) * 800
    log.update_config(LogConfig())
    append(log)
    append(log, payload=payload)
    piece = log.reads.read(1, max_bytes=1 << 20)
    view = piece.view()
    assert view.readonly
    assert bytes(view[61:]) == payload
    assert piece.read_bytes() == view
