"""The open files and mappings of segments, in a pool with a limit: thousands of segments can't all
have an open file. The pool may close any of them at any time, and its owner opens it again.

The pool keeps the order of opening; over the limit the oldest is closed, unless it was used since
its last turn (second chance).

Large runs of the `.log` file are read as views of the page cache, small ones are copied;
measurements decided the sizes. A sequential reader needs one mapping per window rather than one per
read, and a view keeps its own pages alive when the window moves on. A caller that must not wait for
a disk gets a ColdBytesError, which has the job to run before the next try. Source: R-LOG4, R-LOG5.
"""

import logging
import mmap
import resource
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from storage_engine.core.errors import LogStorageError
from storage_engine.log.files.disk import Buffer, Disk, storage_error

logger = logging.getLogger(__name__)


SHARE_OF_LIMIT = 2
"""One in so many of the process's descriptors is for logs; sockets take the rest."""

MAX_OPEN_FILES = 20_000
"""Well below the kernel's 65,530 mappings a process."""


def descriptor_limit() -> int:
    """Return how many descriptors this process may have."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NO_DESCRIPTOR_LIMIT if soft_limit == resource.RLIM_INFINITY else soft_limit


def pool_limit(descriptors: int) -> int:
    """Return how many of that many descriptors the logs may keep open."""
    return min(MAX_OPEN_FILES, max(1, descriptors // SHARE_OF_LIMIT))


NO_DESCRIPTOR_LIMIT = 1 << 30
"""The limit that is assumed for a process without one; the kernel's own bound (fs.nr_open)."""


class Releasable(Protocol):
    """An open file or mapping that can be opened again."""

    recently_used: bool

    def release(self) -> None:
        """Close it; the owner reopens it when needed."""
        ...


class OpenFiles:
    """The open files and mappings of all logs of a broker."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is taken from the process's own when it is not given."""
        self._limit = limit or pool_limit(descriptor_limit())
        self._items: dict[int, Releasable] = {}
        """The open items by identity, oldest first."""

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Releasable) -> None:
        """Counts `item`, which has just been opened, and releases others over the limit."""
        items = self._items
        items[id(item)] = item
        while len(items) > self._limit:
            key, oldest = next(iter(items.items()))
            del items[key]
            if oldest.recently_used:
                oldest.recently_used = False
                items[key] = oldest
            else:
                oldest.release()

    def discard(self, item: Releasable) -> None:
        """Forgets `item`, which its owner has closed."""
        self._items.pop(id(item), None)


class SegmentFile:
    """The descriptor of one file, opened on first use. Invariant: `descriptor` is -1 while
    closed.
    """

    __slots__ = ("_disk", "_pool", "descriptor", "path", "recently_used")

    def __init__(self, disk: Disk, pool: OpenFiles, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._pool = pool
        self.descriptor = -1
        self.recently_used = False

    def open(self) -> int:
        """Return the descriptor, valid until the next opening of any file."""
        self.recently_used = True
        if self.descriptor < 0:
            self.descriptor = self._disk.open_existing(self.path)
            self._pool.add(self)
        return self.descriptor

    def create(self) -> None:
        """Creates the file, empty, and opens it."""
        self.close()
        self.descriptor = self._disk.open_for_append(self.path)
        self._disk.truncate(self.descriptor, 0)
        self._pool.add(self)

    def release(self) -> None:
        """Closes the descriptor; called by the pool."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            self._disk.close(descriptor)

    def close(self) -> None:
        if self.descriptor >= 0:
            self._pool.discard(self)
            self.release()


WINDOW_BYTES = 16 << 20
"""The size is large enough that mapping costs nothing per read, and small enough that a thousand
readers use little address space.
"""


class MappedWindow:
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


FIND_BYTES = 16 << 10
"""The bytes beyond a read that finding its end may read: two chunks of headers."""


class LoadJob:
    """Runs of bytes of one file. `run` is called once."""

    __slots__ = ("_descriptor", "_disk", "_path", "_runs")

    def __init__(
        self, disk: Disk, descriptor: int, path: Path, runs: Sequence[tuple[int, int]]
    ) -> None:
        """Takes over `descriptor`. `runs` are given by position and size."""
        self._disk = disk
        self._descriptor = descriptor
        self._path = path
        self._runs = runs

    @property
    def size(self) -> int:
        return sum(size for _, size in self._runs)

    def run(self) -> LogStorageError | None:
        """Waits for the medium; returns the error, which the owner of the log handles."""
        try:
            for position, size in self._runs:
                self._disk.load(self._descriptor, size, position)
        except OSError as error:
            return storage_error("read", self._path, error)
        finally:
            self._disk.close(self._descriptor)
        return None


class Loadable(Protocol):
    """A file that can return load jobs."""

    def load_job(self, position: int, size: int, end: int) -> LoadJob: ...


class ColdBytesError(Exception):
    """Bytes are not in the page cache, and the caller must not wait for them."""

    def __init__(self, file: Loadable, position: int, end: int) -> None:
        super().__init__(f"bytes at {position} are not in the page cache")
        self._file = file
        self._position = position
        self._end = end

    def load_job(self, read_bytes: int) -> LoadJob:
        """Return a job to run before the next try, which will read about `read_bytes` from that
        position."""
        size = min(read_bytes + FIND_BYTES, self._end - self._position)
        return self._file.load_job(self._position, size, self._end)


WRITE_MAX_BYTES = 128 << 10
"""The most bytes of one write call: larger appends to the page cache were slower when measured.
"""

COPY_MAX_BYTES = 64 << 10
"""Up to this size bytes are copied, which costs about what the page faults of a view do. It must
not be less than what a connection joins to one answer (SMALL_WRITE_BYTES): a copy of a view whose
page can't be read from the medium would end the process.
"""


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
