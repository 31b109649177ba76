"""The `.log` file of a segment. A failed write leaves nothing behind.

Large runs are read as views of the page cache, small ones are copied; measurements decided the
sizes. Source: R-LOG4, R-LOG5.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from storage_engine.core.errors import LogStorageError
from storage_engine.log.files.disk import Buffer, Disk
from storage_engine.log.files.load_job import ColdBytesError, LoadJob
from storage_engine.log.files.mapped_window import MappedWindow
from storage_engine.log.files.open_files import OpenFiles, SegmentFile
from storage_engine.log.files.storage_errors import storage_error

WRITE_MAX_BYTES = 128 << 10
"""The most bytes of one write call: larger appends to the page cache were slower when measured.
"""

COPY_MAX_BYTES = 64 << 10
"""Up to this size bytes are copied, which costs about what the page faults of a view do. It must
not be less than what a connection joins to one answer (SMALL_WRITE_BYTES): a copy of a view whose
page can't be read from the medium would end the process.
"""

logger = logging.getLogger(__name__)


class LogFile(SegmentFile):
    """A segment's batches. The segment passes in `end`, the number of bytes that count."""

    __slots__ = ("_window",)

    def __init__(self, disk: Disk, pool: OpenFiles, path: Path) -> None:
        super().__init__(disk, pool, path)
        self._window = MappedWindow(disk, pool, self)

    def append(self, pieces: Iterable[Buffer], end: int) -> None:
        """Writes all of them from `end` on; after a failure the file is cut back to it, and
        LogStorageError raised.
        """
        self.recently_used = True
        descriptor = self.descriptor
        position = end
        try:
            if descriptor < 0:
                descriptor = self.open()
            for data in pieces:
                size = len(data)
                if size > WRITE_MAX_BYTES or self._disk.pwrite(descriptor, data, position) != size:
                    self._write_in_parts(descriptor, memoryview(data), position)
                position += size
        except OSError as error:
            self._cut_back(end)
            raise storage_error("append to", self.path, error, unchanged=True) from error

    def read(self, position: int, size: int, end: int) -> bytes:
        """Return a copy of the bytes; LogStorageError when they are not there."""
        self._check_range(position, size, end)
        try:
            data = self._disk.pread(self.open(), size, position)
        except OSError as error:
            raise storage_error("read", self.path, error) from error
        if len(data) < size:
            raise LogStorageError(f"{self.path} ends before byte {position + size}")
        return data

    def view(self, position: int, size: int, end: int) -> memoryview:
        """Return the bytes, copied when they are few, else mapped; LogStorageError when they are
        not there.
        """
        if size <= COPY_MAX_BYTES:
            return memoryview(self.read(position, size, end))
        self._check_range(position, size, end)
        try:
            return self._window.view(position, size, end)
        except OSError as error:
            raise storage_error("read", self.path, error) from error
        except ValueError as error:
            raise LogStorageError(f"{self.path} is shorter than {end} bytes") from error

    def peek(self, position: int, count: int, end: int, *, wait: bool) -> bytes | bytearray:
        """Return at most `count` bytes of headers; OSError. ColdBytesError when that would have to
        wait for the medium, unless `wait`.
        """
        if wait:
            return self._disk.pread(self.open(), count, position)
        data = self._disk.read_cached(self.open(), min(count, end - position), position)
        if data is None:
            raise ColdBytesError(self, position, end)
        return data

    def read_cached(self, position: int, size: int) -> bytearray | None:
        """Return a copy of the bytes, if they are in the page cache; else None."""
        try:
            return self._disk.read_cached(self.open(), size, position)
        except OSError:
            # The job that loads them gets the error again, and reports it.
            return None

    def is_cached(self, position: int, size: int) -> bool:
        """Return True when a view of the bytes will not wait for the medium, judged by samples."""
        try:
            return self._disk.is_cached(self.open(), size, position)
        except OSError:
            return False

    def load_job(self, position: int, size: int, end: int) -> LoadJob:
        """Return a job that brings the bytes into the page cache; LogStorageError when the file
        can't be opened.
        """
        return self.load_runs([(position, min(size, end - position))])

    def load_runs(self, runs: Sequence[tuple[int, int]]) -> LoadJob:
        """Return a job for several runs of bytes, each given by position and size."""
        try:
            descriptor = self._disk.duplicate(self.open())
        except OSError as error:
            raise storage_error("read", self.path, error) from error
        return LoadJob(self._disk, descriptor, self.path, runs)

    def truncate(self, end: int) -> None:
        self._window.close()
        try:
            self._disk.truncate(self.open(), end)
        except OSError as error:
            raise storage_error("truncate", self.path, error) from error

    def close(self) -> None:
        self._window.close()
        super().close()

    def _write_in_parts(self, descriptor: int, view: memoryview, position: int) -> None:
        pwrite = self._disk.pwrite
        done = 0
        size = len(view)
        while done < size:
            done += pwrite(descriptor, view[done : done + WRITE_MAX_BYTES], position + done)

    def _cut_back(self, end: int) -> None:
        """Cuts the file back, if that is possible: bytes beyond `end` are overwritten by the next
        append or cut by recovery.
        """
        try:
            self._disk.truncate(self.open(), end)
        except OSError as error:
            logger.error("not cut back after a failed append file=%s error=%s", self.path, error)

    def _check_range(self, position: int, size: int, end: int) -> None:
        if position + size > end:
            raise LogStorageError(
                f"bytes [{position}, {position + size}) of {self.path} were truncated away"
            )
