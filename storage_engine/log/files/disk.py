"""All file operations of the log: nothing else in this package touches a file.

A simulated disk implements `Disk` and runs under the real log code. Descriptors are plain integers,
and the hot calls (`pwrite`, `pread`) are the system's own functions, so that the indirection costs
nothing.

An OSError leaves this package only as LogStorageError, whose code has a client try another replica.
Its class says how far the failure goes: this action only (no room, no descriptors), this log, or
the whole log dir. What each number means is in `core.system_errors`. Source: R-LOG8.
"""

import errno
import fcntl
import logging
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from storage_engine.core.errors import (
    LogDirError,
    LogFullError,
    LogShortageError,
    LogStorageError,
)
from storage_engine.core.system_errors import Reach, reach_of_file_error

logger = logging.getLogger(__name__)


Buffer = bytes | bytearray | memoryview | mmap.mmap

_READ_WRITE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_FILE_MODE = 0o644
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

PROBE_BYTES = 512 << 10
"""One byte in so many is read to find out what is in the page cache. Such a read costs about 1 us,
and pages that are missing between two of them cost one short wait at most.
"""

_LOAD_BYTES = 1 << 20
_ONE_BYTE = [bytearray(1)]
"""A buffer whose content is never used."""


class Disk(Protocol):
    """The operations of a file system that the log uses. Failures are OSError."""

    pwrite: Callable[[int, Buffer, int], int]
    """(descriptor, bytes, position) -> bytes written, possibly fewer."""
    pread: Callable[[int, int, int], bytes]
    """(descriptor, count, position) -> at most `count` bytes, fewer only at the end of the file."""

    def read_once(self, descriptor: int, count: int, position: int) -> bytes:
        """Reads as `pread` does, for bytes that are not read again soon: they do not stay in the
        page cache if they were not there before."""
        ...

    def open_for_append(self, path: Path) -> int:
        """Return a descriptor to read and write; the file is created when absent."""
        ...

    def open_existing(self, path: Path) -> int:
        """Return a descriptor to read and write; OSError when the file is absent."""
        ...

    def close(self, descriptor: int) -> None: ...

    def duplicate(self, descriptor: int) -> int: ...

    def size(self, descriptor: int) -> int: ...

    def truncate(self, descriptor: int, size: int) -> None: ...

    def sync(self, descriptor: int) -> None:
        """Brings the data, and the metadata that is needed to find it, to the medium."""
        ...

    def open_directory(self, path: Path) -> int:
        """Return a descriptor for `sync_names`."""
        ...

    def sync_names(self, descriptor: int) -> None:
        """Brings the names in the folder to the medium."""
        ...

    def map(self, descriptor: int, length: int, position: int) -> memoryview:
        """Return a read-only view of the page cache; `position` must be page aligned. It is
        unmapped with its last reference.
        """
        ...

    def read_cached(self, descriptor: int, count: int, position: int) -> bytearray | None:
        """Return exactly these bytes, if all are in the page cache; else None."""
        ...

    def is_cached(self, descriptor: int, count: int, position: int) -> bool:
        """Return True when these bytes are in the page cache, judged by one byte in PROBE_BYTES."""
        ...

    def load(self, descriptor: int, count: int, position: int) -> None:
        """Waits until these bytes are in the page cache."""
        ...

    def read_file(self, path: Path) -> bytes: ...

    def list_names(self, path: Path) -> list[str]: ...

    def exists(self, path: Path) -> bool: ...

    def is_directory(self, path: Path) -> bool: ...

    def file_size(self, path: Path) -> int: ...

    def modified_ms(self, path: Path) -> int:
        """Return when the file's content was last written."""
        ...

    def make_directory(self, path: Path) -> None:
        """Creates the folder and its parents; no error when it is there."""
        ...

    def rename(self, path: Path, target: Path) -> None:
        """Renames `path`, replacing `target`."""
        ...

    def remove(self, path: Path) -> None:
        """Removes the file; no error when it is absent."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Removes the folder and its content; no error when it is absent."""
        ...

    def lock(self, path: Path) -> int | None:
        """Return a descriptor that holds the exclusive lock on the file until closed; None when
        another process has it.
        """
        ...

    def free_bytes(self, path: Path) -> int:
        """Return the bytes that this user may still write to the file system of the folder."""
        ...

    def boot_id(self) -> str:
        """Return an id that changes with each start of the machine."""
        ...


class RealDisk:
    """The operating system's files."""

    pwrite: Callable[[int, Buffer, int], int] = staticmethod(os.pwrite)
    pread: Callable[[int, int, int], bytes] = staticmethod(os.pread)

    def read_once(self, descriptor: int, count: int, position: int) -> bytes:
        cached = self.read_cached(descriptor, count, position)
        if cached is not None:
            return bytes(cached)
        data = self.pread(descriptor, count, position)
        os.posix_fadvise(descriptor, position, len(data), os.POSIX_FADV_DONTNEED)
        return data

    def open_for_append(self, path: Path) -> int:
        return os.open(path, _READ_WRITE, _FILE_MODE)

    def open_existing(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def duplicate(self, descriptor: int) -> int:
        return os.dup(descriptor)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        _sync(os.fdatasync, descriptor)

    def open_directory(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync_names(self, descriptor: int) -> None:
        # Not fdatasync: file systems may leave out new names that did not enlarge the folder.
        _sync(os.fsync, descriptor)

    def map(self, descriptor: int, length: int, position: int) -> memoryview:
        return memoryview(
            mmap.mmap(descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=position)
        )

    def read_cached(self, descriptor: int, count: int, position: int) -> bytearray | None:
        buffer = bytearray(count)
        try:
            read = os.preadv(descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            read = os.preadv(descriptor, [buffer], position)
        return buffer if read == count else None

    def is_cached(self, descriptor: int, count: int, position: int) -> bool:
        preadv = os.preadv
        try:
            # It begins at the end: the caller has just read the beginning.
            for at in range(position + count - 1, position - 1, -PROBE_BYTES):
                preadv(descriptor, _ONE_BYTE, at, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            # File systems that don't support the flag evict nothing, such as an old tmpfs.
            if error.errno != errno.EOPNOTSUPP:
                raise
        return True

    def load(self, descriptor: int, count: int, position: int) -> None:
        buffer = memoryview(bytearray(min(count, _LOAD_BYTES)))
        end = position + count
        while position < end:
            read = os.preadv(descriptor, [buffer[: end - position]], position)
            if not read:
                return
            position += read

    def read_file(self, path: Path) -> bytes:
        return path.read_bytes()

    def list_names(self, path: Path) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries]

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def file_size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, path: Path, target: Path) -> None:
        path.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            # Somebody else removes a part of it; the rest still has to be removed.
            shutil.rmtree(path, ignore_errors=True)

    def lock(self, path: Path) -> int | None:
        descriptor = os.open(path, _READ_WRITE, _FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def free_bytes(self, path: Path) -> int:
        system = os.statvfs(path)
        return system.f_bavail * system.f_frsize

    def boot_id(self) -> str:
        return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "unknown"


REAL_DISK: Disk = RealDisk()


def _sync(call: Callable[[int], None], descriptor: int) -> None:
    """Calls a sync. One that lacked memory is no better than one that the medium failed: its pages
    may count as clean now, so that a repeated call would prove nothing."""
    try:
        call(descriptor)
    except OSError as error:
        if reach_of_file_error(error) is Reach.SHORTAGE:
            raise OSError(errno.EIO, f"not synced: {error.strerror}") from error
        raise


def write_fully(disk: Disk, descriptor: int, data: Buffer, position: int) -> None:
    """Writes all of `data`; a short write is continued."""
    written = disk.pwrite(descriptor, data, position)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(view):
        written += disk.pwrite(descriptor, view[written:], position + written)


def write_anew(disk: Disk, path: Path) -> None:
    """Writes a small file as it is, in place, so that the next sync brings it to the medium: the
    kernel may count its pages as clean after a sync that failed."""
    descriptor = disk.open_existing(path)
    try:
        write_fully(disk, descriptor, disk.pread(descriptor, disk.size(descriptor), 0), 0)
    finally:
        disk.close(descriptor)


def sync_names(disk: Disk, directory: Path) -> None:
    """Brings the names in the folder to the medium."""
    descriptor = disk.open_directory(directory)
    try:
        disk.sync_names(descriptor)
    finally:
        disk.close(descriptor)


def replace_file(disk: Disk, path: Path, content: bytes, *, sync: bool) -> None:
    """Replaces the file by one with `content`: a crash leaves the old one or the new one.

    Without `sync` that holds for a crash of the process; with it also for one of the machine.
    """
    temporary = path.with_name(path.name + ".tmp")
    descriptor = disk.open_for_append(temporary)
    try:
        disk.truncate(descriptor, 0)
        write_fully(disk, descriptor, content, 0)
        if sync:
            disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    disk.rename(temporary, path)
    if sync:
        sync_names(disk, path.parent)


def storage_error(
    action: str, path: Path, error: OSError, *, unchanged: bool = False
) -> LogStorageError:
    """Return the error of an action. `unchanged`: everything is as it was before the action, so
    that a lack of room did no harm."""
    message = f"can't {action} {path}: {error.strerror or error}"
    reach = reach_of_file_error(error)
    if reach is Reach.LOG_DIR:
        return LogDirError(message)
    if reach is Reach.SHORTAGE:
        return LogShortageError(message)
    if unchanged and reach is Reach.ROOM:
        return LogFullError(message)
    return LogStorageError(message)


@contextmanager
def storage_errors(action: str, path: Path, *, unchanged: bool = False) -> Iterator[None]:
    """Translate errors in a `with` block about `path`; not for hot paths, where a `try` costs
    less."""
    try:
        yield
    except OSError as error:
        raise storage_error(action, path, error, unchanged=unchanged) from error


ALLOWANCE_BYTES = 8 << 20
"""The bytes that may be appended before the operating system is asked again; small beside the usual
reserve, since others fill the disk too.
"""


class FreeSpace:
    """The free space of one log dir, shared by its logs."""

    __slots__ = ("_allowance", "_disk", "_path", "is_full", "reserve_bytes")

    def __init__(self, disk: Disk, path: Path, *, reserve_bytes: int = 0) -> None:
        """`reserve_bytes` 0: the space is never checked, and no append is refused."""
        self._disk = disk
        self._path = path
        self.reserve_bytes = reserve_bytes
        self._allowance = 0
        self.is_full = False
        """True when the last append was refused."""

    def take(self, size: int) -> None:
        """Subtracts an append of `size` bytes before it is made; LogFullError when that would reach
        into the reserve."""
        left = self._allowance - size
        if left < 0 and self.reserve_bytes:
            left = self._ask(size)
        self._allowance = left

    def refresh(self) -> None:
        """Has the next append count what others wrote meanwhile."""
        self._allowance = 0

    def _ask(self, size: int) -> int:
        try:
            free = self._disk.free_bytes(self._path)
        except OSError as error:
            raise storage_error("ask for the free space of", self._path, error) from error
        room = free - self.reserve_bytes
        if room < size:
            if not self.is_full:
                self.is_full = True
                logger.error(
                    "log dir full, appends are refused log_dir=%s free_bytes=%d"
                    " reserve_bytes=%d: make room, or lower log.dir.min.free.bytes",
                    self._path,
                    free,
                    self.reserve_bytes,
                )
            raise LogFullError(
                f"no room for {size} bytes in the log dir {self._path}: {free} bytes are"
                f" free, log.dir.min.free.bytes={self.reserve_bytes} of them are kept"
            )
        if self.is_full:
            self.is_full = False
            logger.info("log dir has room again log_dir=%s free_bytes=%d", self._path, free)
        return min(room, ALLOWANCE_BYTES) - size
