"""Compares the index files of a closed segment with its batches. The files are read once, before
the batches; nothing is repaired here.

An offset index with fewer entries than it could have is slower, not wrong.

Source: R-LOG3, R-LOG8, R-LOG11.
"""

from pathlib import Path

from storage_engine.log.files.disk import Disk
from storage_engine.log.segments.offset_index import ENTRY as OFFSET_ENTRY
from storage_engine.log.segments.time_index import ENTRY as TIME_ENTRY
from storage_engine.protocol.records.record_batch import NO_TIMESTAMP, BatchHeader


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
