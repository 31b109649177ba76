"""The mapped part of a segment file. A view keeps its own pages alive when the window moves on.

A sequential reader needs one mapping per window rather than one per read, and the mappings of a
broker stay small however large its logs are. A window ends at the end of the file at the time; a
reader at the end gets a new one when the file has grown.
"""

import mmap

from storage_engine.log.files.disk import Disk
from storage_engine.log.files.open_files import OpenFiles, SegmentFile

WINDOW_BYTES = 16 << 20
"""The size is large enough that mapping costs nothing per read, and small enough that a thousand
readers use little address space.
"""


class MappedWindow:
    """One window over one file."""

    __slots__ = ("_disk", "_file", "_pool", "_start", "_view", "recently_used")

    def __init__(self, disk: Disk, pool: OpenFiles, file: SegmentFile) -> None:
        self._disk = disk
        self._pool = pool
        self._file = file
        self._start = 0
        self._view: memoryview | None = None
        self.recently_used = False

    def view(self, position: int, size: int, file_size: int) -> memoryview:
        """Return the bytes [position, position + size) of a file that has at least `file_size`
        bytes."""
        self.recently_used = True
        begin = position - self._start
        view = self._view
        if view is None or begin < 0 or begin + size > len(view):
            view = self._move(position, size, file_size)
            begin = position - self._start
        return view[begin : begin + size]

    def release(self) -> None:
        """Drops the mapping; existing views keep theirs."""
        self._view = None

    def close(self) -> None:
        if self._view is not None:
            self._pool.discard(self)
            self._view = None

    def _move(self, position: int, size: int, file_size: int) -> memoryview:
        start = position - position % mmap.ALLOCATIONGRANULARITY
        length = min(max(WINDOW_BYTES, position + size - start), file_size - start)
        known = self._view is not None
        view = self._disk.map(self._file.open(), length, start)
        self._view = view
        self._start = start
        if not known:
            self._pool.add(self)
        return view
