"""Reads segment files and checks them, batch by batch and entry by entry.

It only reads, and trusts nothing.

Files are known by their names, `<base offset>.log`, `.index`, `.timeindex`; an index is compared
with the `.log` beside it, if there is one. Source: R-LOG1, R-LOG3, R-LOG8; the formats are
described in `log/` and `protocol/records/record_batch.py`.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from storage_engine.core.errors import CorruptRecordError
from storage_engine.log.segments import indexes
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    crc_matches,
    read_header,
)
from storage_engine.protocol.typed.damage import damaged_part
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """A batch as it was found. `header` is None for bytes at the end of the file that are no
    batch."""

    position: int
    header: BatchHeader | None
    problem: str | None


class IndexEntryReport(NamedTuple):
    """An entry of an index as it was found. `value` is a byte position or a timestamp (ms)."""

    number: int
    offset: int
    value: int
    problem: str | None


def entry_document(path: Path, entry: IndexEntryReport) -> Document:
    """An entry of an index as a document."""
    return {
        "entry": entry.number,
        "last_offset": entry.offset,
        value_name(path): entry.value,
        "problem": entry.problem,
    }


def value_name(path: Path) -> str:
    return "position" if path.suffix == ".index" else "timestamp"


def base_offset_of(path: Path) -> int:
    """The base offset in the file's name; CommandError when it isn't a segment file's name."""
    if path.suffix not in SUFFIXES or not (path.stem.isascii() and path.stem.isdigit()):
        raise CommandError(
            f"'{path}' is not a file of a segment: give <base offset>.log, .index, .timeindex, "
            ".txnindex or .snapshot"
        )
    return int(path.stem)


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """The bytes of a file, from the page cache."""
    with path.open("rb") as file:
        file.seek(0, 2)
        if file.tell() == 0:
            yield memoryview(b"")
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as area:
            view = memoryview(area)
            try:
                yield view
            finally:
                view.release()


def check_log(data: memoryview, base_offset: int) -> Iterator[BatchReport]:
    """Every batch of a `.log` file. After bytes that are no batch the next can't be found."""
    position = 0
    expected_offset = base_offset
    while position < len(data):
        try:
            header = read_header(data, position)
        except CorruptRecordError as error:
            yield BatchReport(position=position, header=None, problem=str(error))
            return
        problem = _fatal_problem(data, position, header)
        if problem is not None:
            yield BatchReport(position=position, header=None, problem=problem)
            return
        yield BatchReport(
            position=position,
            header=header,
            problem=_batch_problem(data, position, header, expected_offset),
        )
        expected_offset = max(expected_offset, header.next_offset)
        position += header.size_in_bytes


def _fatal_problem(data: memoryview, position: int, header: BatchHeader) -> str | None:
    left = len(data) - position
    if header.magic != MAGIC:
        return f"magic {header.magic}, only {MAGIC} is known"
    if header.size_in_bytes > left:
        return f"cut off: the batch has {header.size_in_bytes} bytes, {left} are left in the file"
    return None


def _batch_problem(
    data: memoryview, position: int, header: BatchHeader, expected_offset: int
) -> str | None:
    end = position + header.size_in_bytes
    if not crc_matches(data, position, header.size_in_bytes):
        return f"CRC does not match{damaged_part(header, data[position:end])}"
    if header.base_offset < expected_offset:
        return f"base offset {header.base_offset} is below {expected_offset}, the next one"
    if header.last_offset_delta < 0 or header.records_count < 0:
        return "negative record count"
    return None


def check_index(path: Path, data: memoryview, log: memoryview | None) -> Iterator[IndexEntryReport]:
    """Every entry of an `.index` or `.timeindex` file."""
    check = check_offset_index if path.suffix == ".index" else check_time_index
    return check(data, base_offset_of(path), log)


def check_offset_index(
    data: memoryview, base_offset: int, log: memoryview | None
) -> Iterator[IndexEntryReport]:
    """Every entry of an `.index` file; a batch with that last offset must stand at its position."""
    previous = (base_offset - 1, -1)
    size = indexes.OFFSET_ENTRY.size
    for number in range(len(data) // size):
        relative_offset, position = indexes.OFFSET_ENTRY.unpack_from(data, number * size)
        offset = base_offset + relative_offset
        problem = None
        if offset <= previous[0] or position <= previous[1]:
            problem = "does not increase"
        elif log is not None:
            problem = _offset_entry_problem(log, offset, position)
        yield IndexEntryReport(number, offset, position, problem)
        previous = (offset, position)
    yield from _trailing(len(data), size)


def _offset_entry_problem(log: memoryview, offset: int, position: int) -> str | None:
    if position == 0:
        return "the first batch has no entry"
    if position + HEADER_BYTES > len(log):
        return f"byte {position} is beyond the end of the log file"
    try:
        header = read_header(log, position)
    except CorruptRecordError:
        return f"no batch begins at byte {position}"
    if header.magic != MAGIC:
        return f"no batch of magic {MAGIC} begins at byte {position}"
    if header.last_offset != offset:
        return f"the batch at byte {position} ends with offset {header.last_offset}"
    return None


def check_time_index(
    data: memoryview, base_offset: int, log: memoryview | None
) -> Iterator[IndexEntryReport]:
    """Every entry of a `.timeindex` file; its time must be the largest up to the batch that it
    names.
    """
    largest = _LargestTimestamps(log, base_offset) if log is not None else None
    previous = (-(2**63), base_offset - 1)
    size = indexes.TIME_ENTRY.size
    for number in range(len(data) // size):
        timestamp_ms, relative_offset = indexes.TIME_ENTRY.unpack_from(data, number * size)
        offset = base_offset + relative_offset
        problem = None
        if timestamp_ms <= previous[0] or offset <= previous[1]:
            problem = "does not increase"
        elif largest is not None:
            problem = largest.problem(timestamp_ms, offset)
        yield IndexEntryReport(number, offset, timestamp_ms, problem)
        previous = (timestamp_ms, offset)
    yield from _trailing(len(data), size)


class _LargestTimestamps:
    """Walks a log once, beside the entries of its time index."""

    def __init__(self, log: memoryview, base_offset: int) -> None:
        self._batches = (
            report.header for report in check_log(log, base_offset) if report.header is not None
        )
        self._header: BatchHeader | None = None
        self._largest_ms = -(2**63)

    def problem(self, timestamp_ms: int, offset: int) -> str | None:
        while self._header is None or self._header.last_offset < offset:
            self._header = next(self._batches, None)
            if self._header is None:
                return f"offset {offset} is beyond the end of the log file"
            self._largest_ms = max(self._largest_ms, self._header.max_timestamp)
        if self._header.last_offset != offset:
            return f"no batch ends with offset {offset}"
        if self._largest_ms != timestamp_ms:
            return f"the largest timestamp up to offset {offset} is {self._largest_ms}"
        return None


def _trailing(size: int, entry_size: int) -> Iterator[IndexEntryReport]:
    rest = size % entry_size
    if rest:
        problem = f"{rest} bytes at the end are no whole entry"
        yield IndexEntryReport(size // entry_size, -1, -1, problem)
