"""The sparse index from offsets to byte positions in a segment. Both columns strictly increase.

An entry of `<base offset>.index` (8 bytes, big endian):

    field            bytes  meaning
    relative_offset   4     last offset of a batch, minus the segment's base offset
    position          4     where that batch begins in the `.log` file

About one entry per `index.interval.bytes` of log; the first batch of a segment has none. Source:
R-LOG3.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from storage_engine.log.files.disk import Disk
from storage_engine.log.files.open_files import OpenFiles
from storage_engine.log.segments.index_file import IndexFile
from storage_engine.log.segments.index_search import count_up_to
from storage_engine.protocol.records.record_batch import BatchHeader

ENTRY = struct.Struct(">ii")
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
    """The offset index of one segment."""

    __slots__ = ("_base_offset", "_max_entries", "file")

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
        self._max_entries = max(1, max_bytes // ENTRY.size)

    def __len__(self) -> int:
        return len(self.file)

    @property
    def is_full(self) -> bool:
        return len(self.file) >= self._max_entries

    def append(self, last_offset: int, position: int) -> bool:
        """Adds an entry; returns True when the index is full now."""
        count = self.file.append(ENTRY.pack(last_offset - self._base_offset, position))
        return count >= self._max_entries

    def entry(self, number: int) -> OffsetEntry:
        buffer, at = self.file.locate(number)
        relative_offset, position = ENTRY.unpack_from(buffer, at)
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
