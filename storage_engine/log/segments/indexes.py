"""The sparse indexes of a segment, from offsets to byte positions and from timestamps to offsets.
All columns strictly increase. An index may lag behind the log but never leads.

An entry of `<base offset>.index` (8 bytes, big endian):

    relative_offset   4     last offset of a batch, minus the segment's base offset
    position          4     where that batch begins in the `.log` file

About one entry per `index.interval.bytes` of log; the first batch of a segment has none.

An entry of `<base offset>.timeindex` (12 bytes, big endian):

    timestamp         8     the largest timestamp so far in the segment, milliseconds
    relative_offset   4     last offset of the batch that has it, minus the segment's base offset

So no record before that batch is as late as `timestamp`, and a search for it or anything later may
begin there. When a segment is sealed, the last entry tells its largest timestamp.

New entries wait in memory and go to the file in blocks, on flush and on close: the recovery after
an unclean stop rebuilds the index of the segments that were being written anyway. For the same
reason the file is simply appended to. Source: R-LOG3, R-LOG8, R-LOG11, KIP-33.
"""

import logging
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from storage_engine.log.files.disk import Disk, write_fully
from storage_engine.log.files.segment_files import OpenFiles
from storage_engine.protocol.records.record_batch import NO_TIMESTAMP, BatchHeader

logger = logging.getLogger(__name__)


PLAIN_ENTRIES = 16
"""Up to this many entries a plain bisection reads no more of them."""

FIRST_STEP = 2


def count_up_to(count: int, value: int, at: Callable[[int], int]) -> int:
    """Return how many of the `count` entries are at most `value`; `at(number)` strictly increases.

    A damaged column gives any number from 0 to `count`.
    """
    if count <= PLAIN_ENTRIES:
        return bisect_right(range(count), value, key=at)
    first, last = at(0), at(count - 1)
    if last <= value:
        return count
    if value < first:
        return 0
    # From here on at(low - 1) <= value < at(high), as far as these were read.
    guess = (value - first) * (count - 1) // (last - first)
    step = FIRST_STEP
    if at(guess) <= value:
        low, high = guess + 1, guess + 1 + step
        while high < count and at(high) <= value:
            low, step = high + 1, step * 2
            high = low + step
        high = min(high, count)
    else:
        low, high = guess - step, guess
        while low > 0 and at(low - 1) > value:
            high, step = low - 1, step * 2
            low = high - step
        low = max(low, 0)
    return bisect_right(range(count), value, low, high, key=at)


PENDING_MAX_BYTES = 64 << 10
"""The most bytes of entries in memory: at one per 4 KiB of log, those of the last 20 to 30 MiB."""


class IndexFile:
    """Entries by number; those in the file are read through a mapping that the pool may drop."""

    def __init__(self, disk: Disk, pool: OpenFiles, path: Path, entry_bytes: int) -> None:
        self.path = path
        self._disk = disk
        self._pool = pool
        self.entry_bytes = entry_bytes
        self.recently_used = False
        self._written = -1
        self._trailing_bytes = False
        self._pending = bytearray()
        self._view: memoryview | None = None

    def __len__(self) -> int:
        if self._written < 0:
            self._load()
        return self._written + len(self._pending) // self.entry_bytes

    @property
    def has_trailing_bytes(self) -> bool:
        """True when the file ended within an entry when it was opened."""
        if self._written < 0:
            self._load()
        return self._trailing_bytes

    def append(self, entry: bytes) -> int:
        """Adds an entry and returns the number of entries. Never fails for lack of space: what
        can't be written now stays in memory for the next try.
        """
        if self._written < 0:
            self._load()
        self._pending += entry
        pending_bytes = len(self._pending)
        count = self._written + pending_bytes // self.entry_bytes
        if pending_bytes >= PENDING_MAX_BYTES:
            try:
                self.flush()
            except OSError as error:
                logger.warning(
                    "index not written, kept in memory file=%s error=%s", self.path, error
                )
        return count

    def locate(self, number: int) -> tuple[memoryview | bytearray, int]:
        """Return the buffer of entry `number`, and its position there."""
        if number >= self._written:
            return self._pending, (number - self._written) * self.entry_bytes
        view = self._view
        if view is None or len(view) < (number + 1) * self.entry_bytes:
            view = self._map()
        self.recently_used = True
        return view, number * self.entry_bytes

    def flush(self) -> None:
        """Writes the entries to the file, which exists afterwards even when there are none."""
        if self._written < 0:
            self._load()
        descriptor = self._disk.open_for_append(self.path)
        try:
            if self._trailing_bytes:
                self._disk.truncate(descriptor, self._written * self.entry_bytes)
                self._trailing_bytes = False
            if self._pending:
                write_fully(self._disk, descriptor, self._pending, self._written * self.entry_bytes)
                self._written += len(self._pending) // self.entry_bytes
                self._pending = bytearray()
        finally:
            self._disk.close(descriptor)

    def sync(self) -> None:
        """Brings the entries to the medium."""
        self.flush()
        descriptor = self._disk.open_existing(self.path)
        try:
            self._disk.sync(descriptor)
        finally:
            self._disk.close(descriptor)

    def truncate(self, count: int) -> None:
        """Keeps the first `count` entries."""
        if count >= len(self):
            return
        if count >= self._written:
            del self._pending[(count - self._written) * self.entry_bytes :]
            return
        self._pending = bytearray()
        self._drop_view()
        descriptor = self._disk.open_for_append(self.path)
        try:
            self._disk.truncate(descriptor, count * self.entry_bytes)
        finally:
            self._disk.close(descriptor)
        self._written = count

    def release(self) -> None:
        """Drops the mapping; called by the pool."""
        self._view = None

    def close(self) -> None:
        """Drops the mapping; entries not flushed are lost."""
        self._drop_view()

    def _load(self) -> None:
        size = self._disk.file_size(self.path) if self._disk.exists(self.path) else 0
        self._written = size // self.entry_bytes
        self._trailing_bytes = size % self.entry_bytes != 0

    def _map(self) -> memoryview:
        self._drop_view()
        descriptor = self._disk.open_existing(self.path)
        try:
            view = self._disk.map(descriptor, self._written * self.entry_bytes, 0)
        finally:
            self._disk.close(descriptor)
        self._view = view
        self._pool.add(self)
        return view

    def _drop_view(self) -> None:
        if self._view is not None:
            self._pool.discard(self)
            self._view = None


OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
_FIELD = struct.Struct(">i")


class OffsetEntry(NamedTuple):
    """The batch at byte `position` ends with `last_offset`."""

    last_offset: int
    position: int


MAX_RELATIVE_OFFSET = 0x7FFFFFFF
"""Indexes hold offsets as int32, relative to the base offset of their segment."""

PlacedBatch = tuple[int, BatchHeader]
"""The base offset in the log, and the header as it was sent: a batch is patched in memory, its
parsed header is not."""


class OffsetIndex:
    __slots__ = ("_base_offset", "_max_entries", "file")

    def __init__(
        self,
        disk: Disk,
        pool: OpenFiles,
        path: Path,
        base_offset: int,
        max_bytes: int,
    ) -> None:
        self.file = IndexFile(disk, pool, path, OFFSET_ENTRY.size)
        self._base_offset = base_offset
        self._max_entries = max(1, max_bytes // OFFSET_ENTRY.size)

    def __len__(self) -> int:
        return len(self.file)

    @property
    def is_full(self) -> bool:
        return len(self.file) >= self._max_entries

    def append(self, last_offset: int, position: int) -> bool:
        """Adds an entry; returns True when the index is full now."""
        count = self.file.append(OFFSET_ENTRY.pack(last_offset - self._base_offset, position))
        return count >= self._max_entries

    def entry(self, number: int) -> OffsetEntry:
        buffer, at = self.file.locate(number)
        relative_offset, position = OFFSET_ENTRY.unpack_from(buffer, at)
        return OffsetEntry(self._base_offset + relative_offset, position)

    def last(self) -> OffsetEntry | None:
        count = len(self.file)
        return self.entry(count - 1) if count else None

    def floor(self, offset: int) -> OffsetEntry | None:
        """Return the last entry whose batch ends at or before `offset`."""
        preceding = count_up_to(len(self.file), offset - self._base_offset, self._offset_at)
        return self.entry(preceding - 1) if preceding else None

    def floor_of_position(self, position: int) -> OffsetEntry | None:
        """Return the last entry whose batch begins at or before byte `position`."""
        preceding = count_up_to(len(self.file), position, self._position_at)
        return self.entry(preceding - 1) if preceding else None

    def truncate_to(self, position: int) -> None:
        """Drops the entries of batches at or after byte `position`."""
        self.file.truncate(count_up_to(len(self.file), position - 1, self._position_at))

    def _offset_at(self, number: int) -> int:
        """Return the offset of an entry, relative to the base offset."""
        buffer, at = self.file.locate(number)
        relative_offset: int = _FIELD.unpack_from(buffer, at)[0]
        return relative_offset

    def _position_at(self, number: int) -> int:
        buffer, at = self.file.locate(number)
        position: int = _FIELD.unpack_from(buffer, at + _FIELD.size)[0]
        return position


class TimeEntry(NamedTuple):
    """The batch that ends with `last_offset` has the largest timestamp, `timestamp_ms`, so far in
    the segment."""

    timestamp_ms: int
    last_offset: int


class TimeIndex:
    __slots__ = ("_appended", "_base_offset", "_max_entries", "file")

    def __init__(
        self,
        disk: Disk,
        pool: OpenFiles,
        path: Path,
        base_offset: int,
        max_bytes: int,
    ) -> None:
        self.file = IndexFile(disk, pool, path, TIME_ENTRY.size)
        self._base_offset = base_offset
        self._max_entries = max(2, max_bytes // TIME_ENTRY.size)
        # The newest entry of this process: reading it back costs more than adding one.
        self._appended: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.file)

    @property
    def is_full(self) -> bool:
        return len(self.file) >= self._max_entries - 1

    def append(self, timestamp_ms: int, last_offset: int) -> bool:
        """Adds an entry, unless its timestamp is not above the last one; returns True when the
        index is full now.
        """
        last = self._appended or self.last()
        if last is not None and (timestamp_ms <= last[0] or last_offset <= last[1]):
            return self.is_full
        count = self.file.append(TIME_ENTRY.pack(timestamp_ms, last_offset - self._base_offset))
        self._appended = timestamp_ms, last_offset
        return count >= self._max_entries - 1

    def entry(self, number: int) -> TimeEntry:
        buffer, at = self.file.locate(number)
        timestamp_ms, relative_offset = TIME_ENTRY.unpack_from(buffer, at)
        return TimeEntry(timestamp_ms, self._base_offset + relative_offset)

    def last(self) -> TimeEntry | None:
        count = len(self.file)
        return self.entry(count - 1) if count else None

    def floor(self, timestamp_ms: int) -> TimeEntry | None:
        """Return the last entry that is not later than `timestamp_ms`."""
        preceding = bisect_right(range(len(self.file)), timestamp_ms, key=self._timestamp_at)
        return self.entry(preceding - 1) if preceding else None

    def time_at(self, offset: int) -> int | None:
        """Return the largest timestamp up to the first entry whose batch ends at or after `offset`;
        None where there is no such entry."""
        number = bisect_left(range(len(self.file)), offset, key=self._offset_at)
        return self.entry(number).timestamp_ms if number < len(self.file) else None

    def truncate_to(self, end_offset: int) -> None:
        """Drops the entries of batches that end at or after `end_offset`."""
        self._appended = None
        self.file.truncate(bisect_right(range(len(self.file)), end_offset - 1, key=self._offset_at))

    def clear(self) -> None:
        """Drops all entries, whatever they are."""
        self._appended = None
        self.file.truncate(0)

    def _timestamp_at(self, number: int) -> int:
        return self.entry(number).timestamp_ms

    def _offset_at(self, number: int) -> int:
        return self.entry(number).last_offset


class IndexCheck:
    """Compares both indexes of one segment, entry by entry, as its batches are read."""

    def __init__(
        self, disk: Disk, *, offset_index: Path, time_index: Path, base_offset: int
    ) -> None:
        """OSError when the disk fails; a missing file does not agree."""
        self._base_offset = base_offset
        self.agrees = disk.exists(offset_index) and disk.exists(time_index)
        """True when the entries fit the batches so far."""
        self._offsets = _whole(disk, offset_index, OFFSET_ENTRY.size)
        self._times = _whole(disk, time_index, TIME_ENTRY.size)
        self._offset_at = 0
        self._time_at = 0
        self._max_timestamp = NO_TIMESTAMP
        self._last_timestamp = NO_TIMESTAMP

    def take(self, position: int, header: BatchHeader) -> None:
        """Takes the next batch of the segment, which is good."""
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        if self._offset_at < len(self._offsets):
            relative, entry_position = OFFSET_ENTRY.unpack_from(self._offsets, self._offset_at)
            if entry_position <= position:
                self._offset_at += OFFSET_ENTRY.size
                if (relative, entry_position) != (header.last_offset - self._base_offset, position):
                    self.agrees = False
        if self._time_at < len(self._times):
            timestamp, relative = TIME_ENTRY.unpack_from(self._times, self._time_at)
            if self._base_offset + relative <= header.last_offset:
                self._time_at += TIME_ENTRY.size
                if (timestamp, self._base_offset + relative) != (
                    header.max_timestamp,
                    header.last_offset,
                ):
                    self.agrees = False
                self._last_timestamp = timestamp

    def finish(self) -> None:
        """Ends the comparison after the last batch."""
        if (
            self._offset_at < len(self._offsets)
            or self._time_at < len(self._times)
            or self._last_timestamp != self._max_timestamp
        ):
            self.agrees = False

    def places_after(self, position: int) -> list[int]:
        """Return the byte positions after `position` at which batches begin according to the offset
        index, ascending."""
        places = {place for _, place in OFFSET_ENTRY.iter_unpack(self._offsets)}
        return sorted(place for place in places if place > position)

    def has_place_at_or_after(self, position: int) -> bool:
        return any(place >= position for _, place in OFFSET_ENTRY.iter_unpack(self._offsets))


def _whole(disk: Disk, path: Path, entry_bytes: int) -> bytes:
    """Return the whole entries of a file."""
    if not disk.exists(path):
        return b""
    data = disk.read_file(path)
    return data[: len(data) - len(data) % entry_bytes]
