"""An append-only file of entries of one size. An index may lag behind the log but never leads.

New entries wait in memory and go to the file in blocks, on flush and on close: the recovery after
an unclean stop rebuilds the index of the segments that were being written anyway. For the same
reason the file is simply appended to; preallocation would only save the append of a few KiB per
GiB.
"""

import logging
from pathlib import Path

from storage_engine.log.files.disk import Disk, write_fully
from storage_engine.log.files.open_files import OpenFiles

PENDING_MAX_BYTES = 64 << 10
"""The most bytes of entries in memory: at one per 4 KiB of log, those of the last 20 to 30 MiB."""

logger = logging.getLogger(__name__)


class IndexFile:
    """Entries by number; those in the file are read through a mapping that the pool may drop."""

    __slots__ = (
        "_disk",
        "_pending",
        "_pool",
        "_trailing_bytes",
        "_view",
        "_written",
        "entry_bytes",
        "path",
        "recently_used",
    )

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
        """Return the number of entries."""
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
