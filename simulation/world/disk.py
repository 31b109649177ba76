"""A disk in memory that crashes at a chosen change. Its fault model and a seed decide what is left
after a crash.

It implements `log.files.disk.Disk` and runs under the real log code. `crash_after` selects the
change at which the process dies; from then on every change fails with `CrashError`, so that code
that runs while the exception unwinds can't change the files. Then the test calls one of

    kill_process()       the page cache lives on: nothing is lost
    lose_power(choose)   what was not synced may be; see memory_files

Parts of it can fail too: folders that give I/O errors, or that are full; and the process can be out
of descriptors.
"""

import errno
import itertools
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from simulation.world.memory_files import MemoryFile, MemoryFolder
from storage_engine.log.files.disk import Buffer

LATER_THAN_EVER_MS = 1 << 62
FREE_BYTES = 1 << 40


class CrashError(BaseException):
    """The process died here. It is no Exception, so that the log does not take it for a failed
    call."""


class SimulatedDisk:
    """A file system of its own, with only `root`, which is on the medium."""

    def __init__(self, root: Path) -> None:
        self.broken: set[Path] = set()
        """Folders in which every call fails with `error`."""
        self.broken_syncs: set[Path] = set()
        """Folders in which only syncs fail with `error`: see the failed sync in `memory_files`."""
        self.error = errno.EIO
        self.room: dict[Path, int] = {}
        """The bytes that may still be written in these folders."""
        self.free: dict[Path, int] = {}
        """The free bytes that these folders' file systems report."""
        self.cold: set[Path] = set()
        """Folders whose content is not in the page cache, until a part of it is loaded."""
        self.refused_syncs: list[Path] = []
        """The files whose syncs have failed."""
        self.stays_cold = False
        """True when loaded content is evicted again at once."""
        self.loads = 0
        self.wall_ms: Callable[[], int] = lambda: LATER_THAN_EVER_MS
        """The time of files' modifications. Without a clock each file is new."""
        self.opens = 0
        """The number of calls so far that take a descriptor, or a mapping, on a real disk."""
        self.short_at: range = range(0)
        """Which of these calls, counted from 1, fail for want of descriptors."""
        self.boots = 0
        self.syncs = 0
        self.changes = 0
        """The number of calls so far that change something or sync."""
        self.crash_after: int | None = None
        """The number of the last change before the crash; None: no crash."""
        self._top = MemoryFolder()
        self._open: dict[int, tuple[Path, MemoryFile | MemoryFolder]] = {}
        self._descriptors = itertools.count(1000)
        self._locked: dict[int, MemoryFile] = {}
        self.pwrite: Callable[[int, Buffer, int], int] = self._pwrite
        self.pread: Callable[[int, int, int], bytes] = self._pread
        self.make_directory(root)
        self._sync_all(self._top)

    @property
    def is_dead(self) -> bool:
        """True when it crashed and was not started again."""
        return self.crash_after is not None and self.changes >= self.crash_after

    def kill_process(self) -> None:
        """Close the process's descriptors and locks; its files stay as it left them."""
        self.crash_after = None
        self._open.clear()
        self._locked.clear()

    def lose_power(self, choose: random.Random | None = None) -> None:
        """Lose what was not synced, as `choose` decides; without it everything."""
        self.kill_process()
        self.boots += 1
        self._top.lose_power(choose)

    def open_for_append(self, path: Path) -> int:
        self._check(path)
        self._take_descriptor(path)
        folder = self._folder(path.parent)
        node = folder.names.get(path.name)
        if node is None:
            node = MemoryFile()
            self._change(lambda: folder.add(path.name, node))
        return self._opened(path, node)

    def open_existing(self, path: Path) -> int:
        self._check(path)
        self._take_descriptor(path)
        return self._opened(path, self._file(path))

    def close(self, descriptor: int) -> None:
        # After a crash all are closed already; code that unwinds may close them again.
        self._open.pop(descriptor, None)
        self._locked.pop(descriptor, None)

    def duplicate(self, descriptor: int) -> int:
        path, node = self._at(descriptor)
        self._take_descriptor(path)
        return self._opened(path, node)

    def size(self, descriptor: int) -> int:
        return self._file_at(descriptor)[1].size

    def truncate(self, descriptor: int, size: int) -> None:
        path, file = self._file_at(descriptor)
        self._check(path)
        if size != file.size:
            self._change(lambda: file.truncate(size))

    def sync(self, descriptor: int) -> None:
        path, file = self._file_at(descriptor)
        try:
            self._check_sync(path)
        except OSError:
            file.fail_sync()
            raise
        self.syncs += 1
        self._begin_sync()
        file.sync()

    def open_directory(self, path: Path) -> int:
        self._check(path)
        self._take_descriptor(path)
        return self._opened(path, self._folder(path))

    def sync_names(self, descriptor: int) -> None:
        _, folder = self._at(descriptor)
        assert isinstance(folder, MemoryFolder)
        self.syncs += 1
        self._begin_sync()
        folder.sync()

    def map(self, descriptor: int, length: int, position: int) -> memoryview:
        path, file = self._file_at(descriptor)
        self._take_descriptor(path)
        if length <= 0 or position + length > file.size:
            raise ValueError("mmap length is greater than file size")
        return memoryview(file.buffer)[position : position + length].toreadonly()

    def read_once(self, descriptor: int, count: int, position: int) -> bytes:
        return self._pread(descriptor, count, position)

    def is_cached(self, descriptor: int, count: int, position: int) -> bool:
        path, _ = self._file_at(descriptor)
        self._check(path)
        return not _is_below(path, self.cold)

    def read_cached(self, descriptor: int, count: int, position: int) -> bytearray | None:
        if not self.is_cached(descriptor, count, position):
            return None
        data = bytearray(self._pread(descriptor, count, position))
        return data if len(data) == count else None

    def load(self, descriptor: int, count: int, position: int) -> None:
        path, _ = self._file_at(descriptor)
        self._check(path)
        self.loads += 1
        if not self.stays_cold:
            self.cold = {folder for folder in self.cold if not _is_below(path, {folder})}

    def read_file(self, path: Path) -> bytes:
        self._take_descriptor(path)
        file = self._file(path)
        return bytes(memoryview(file.buffer)[: file.size])

    def _pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        path, file = self._file_at(descriptor)
        self._check(path)
        content = bytes(data)
        for folder in self.room.keys() & set(path.parents) if self.room else ():
            # Bytes that are there already are replaced in their place.
            grown = max(0, position + len(content) - file.size)
            if grown and self.room[folder] <= 0:
                raise _error(errno.ENOSPC, path)
            kept = min(grown, self.room[folder])
            content = content[: len(content) - (grown - kept)]
            self.room[folder] -= kept
        file.modified_ms = self.wall_ms()
        self._change(lambda: file.write(content, position))
        return len(content)

    def _pread(self, descriptor: int, count: int, position: int) -> bytes:
        path, file = self._file_at(descriptor)
        self._check(path)
        return bytes(memoryview(file.buffer)[position : min(position + count, file.size)])

    def list_names(self, path: Path) -> list[str]:
        self._check(path)
        self._take_descriptor(path)
        return list(self._folder(path).names)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._find(path), MemoryFolder)

    def file_size(self, path: Path) -> int:
        return self._file(path).size

    def modified_ms(self, path: Path) -> int:
        return self._file(path).modified_ms

    def make_directory(self, path: Path) -> None:
        self._check(path)
        folder = self._top
        for name in path.parts[1:]:
            node = folder.names.get(name)
            if node is None:
                parent, node = folder, MemoryFolder()
                self._change(partial(parent.add, name, node))
            if not isinstance(node, MemoryFolder):
                raise _error(errno.ENOTDIR, path)
            folder = node

    def rename(self, path: Path, target: Path) -> None:
        self._check(path)
        assert path.parent == target.parent, "a rename between folders is not simulated"
        folder = self._folder(path.parent)
        if path.name not in folder.names:
            raise _error(errno.ENOENT, path)
        self._change(lambda: folder.rename(path.name, target.name))

    def remove(self, path: Path) -> None:
        folder = self._find(path.parent)
        if isinstance(folder, MemoryFolder) and path.name in folder.names:
            self._change(lambda: folder.remove(path.name))

    def remove_tree(self, path: Path) -> None:
        folder = self._find(path)
        if isinstance(folder, MemoryFolder):
            self._take_descriptor(path)
            for name in list(folder.names):
                self.remove_tree(path / name)
        self.remove(path)

    def lock(self, path: Path) -> int | None:
        descriptor = self.open_for_append(path)
        _, file = self._file_at(descriptor)
        if any(other is file for other in self._locked.values()):
            self.close(descriptor)
            return None
        self._locked[descriptor] = file
        return descriptor

    def free_bytes(self, path: Path) -> int:
        self._check(path)
        return self.free.get(path, FREE_BYTES)

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def _change(self, apply: Callable[[], None]) -> None:
        """Make a change. The last one before a crash is made, too: its fate is decided with the
        others."""
        if self.is_dead:
            raise CrashError
        self.changes += 1
        apply()
        if self.is_dead:
            raise CrashError

    def _begin_sync(self) -> None:
        """Begin a sync. One that is the last change has done nothing yet."""
        if not self.is_dead:
            self.changes += 1
        if self.is_dead:
            raise CrashError

    def _opened(self, path: Path, node: MemoryFile | MemoryFolder) -> int:
        descriptor = next(self._descriptors)
        self._open[descriptor] = (path, node)
        return descriptor

    def _at(self, descriptor: int) -> tuple[Path, MemoryFile | MemoryFolder]:
        place = self._open.get(descriptor)
        if place is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return place

    def _file_at(self, descriptor: int) -> tuple[Path, MemoryFile]:
        path, file = self._at(descriptor)
        assert isinstance(file, MemoryFile)
        return path, file

    def _find(self, path: Path) -> MemoryFile | MemoryFolder | None:
        node: MemoryFile | MemoryFolder | None = self._top
        for name in path.parts[1:]:
            if not isinstance(node, MemoryFolder):
                return None
            node = node.names.get(name)
        return node

    def _folder(self, path: Path) -> MemoryFolder:
        node = self._find(path)
        if not isinstance(node, MemoryFolder):
            raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node

    def _file(self, path: Path) -> MemoryFile:
        node = self._find(path)
        if not isinstance(node, MemoryFile):
            raise _error(errno.ENOENT if node is None else errno.EISDIR, path)
        return node

    def _sync_all(self, folder: MemoryFolder) -> None:
        folder.sync()
        for node in folder.names.values():
            if isinstance(node, MemoryFolder):
                self._sync_all(node)

    def _check(self, path: Path) -> None:
        if self.broken and _is_below(path, self.broken):
            raise _error(self.error, path)

    def _take_descriptor(self, path: Path) -> None:
        self.opens += 1
        if self.opens in self.short_at:
            raise _error(errno.EMFILE, path)

    def _check_sync(self, path: Path) -> None:
        self._check(path)
        if self.broken_syncs and _is_below(path, self.broken_syncs):
            self.refused_syncs.append(path)
            raise _error(self.error, path)


def _is_below(path: Path, folders: set[Path]) -> bool:
    return any(folder == path or folder in path.parents for folder in folders)


def _error(code: int, path: Path) -> OSError:
    return OSError(code, os.strerror(code), str(path))
