"""The sparse index from timestamps to offsets in a segment. Both columns strictly increase.

An entry of `<base offset>.timeindex` (12 bytes, big endian):

    field            bytes  meaning
    timestamp         8     the largest timestamp so far in the segment, milliseconds
    relative_offset   4     last offset of the batch that has it, minus the segment's base offset

So no record before that batch is as late as `timestamp`, and a search for it or anything later may
begin there. When a segment is sealed, the last entry tells its largest timestamp. Source: KIP-33;
R-LOG11.
"""

import struct
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import NamedTuple

from storage_engine.log.files.disk import Disk
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.segments.index_file import IndexFile

ENTRY = struct.Struct(">qi")


class TimeEntry(NamedTuple):
    """The batch that ends with `last_offset` has the largest timestamp, `timestamp_ms`, so far in
    the segment."""

    timestamp_ms: int
    last_offset: int


class TimeIndex:
    """The time index of one segment."""

    __slots__ = ("_appended", "_base_offset", "_max_entries", "file")

    def __init__(
        self,
        disk: Disk,
        pool: OpenFiles,
        path: Path,
        base_offset: int,
        max_bytes: int,
    ) -> None:
        self.file = IndexFile(disk, pool, path, ENTRY.size)
        self._base_offset = base_offset
        self._max_entries = max(2, max_bytes // ENTRY.size)
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
        count = self.file.append(ENTRY.pack(timestamp_ms, last_offset - self._base_offset))
        self._appended = timestamp_ms, last_offset
        return count >= self._max_entries - 1

    def entry(self, number: int) -> TimeEntry:
        buffer, at = self.file.locate(number)
        timestamp_ms, relative_offset = ENTRY.unpack_from(buffer, at)
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
