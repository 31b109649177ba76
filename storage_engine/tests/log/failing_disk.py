"""A disk of which parts fail on demand: a folder that gives I/O errors, or one that is full."""

import errno
import os
from pathlib import Path

from storage_engine.log.disk import Buffer, RealDisk


class FailingDisk(RealDisk):
    """The real files, with errors for those below given folders."""

    def __init__(self) -> None:
        self.broken: set[Path] = set()
        """Everything in them fails with `error`."""
        self.broken_syncs: set[Path] = set()
        """Only fsync in them fails with `error`."""
        self.error = errno.EIO
        self.room: dict[Path, int] = {}
        """Bytes that may still be written in these."""
        self.free: dict[Path, int] = {}
        """What the file systems of these say is free; others say the truth."""
        self.pwrite = self._pwrite
        self.pread = self._pread

    def _check(self, path: Path | int) -> None:
        if isinstance(path, int):
            if not self.broken:
                return
            path = path_of(path)
        if is_below(path, self.broken):
            raise OSError(self.error, os.strerror(self.error))

    def _pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        self._check(descriptor)
        parents = path_of(descriptor).parents if self.room else ()
        for folder in self.room.keys() & set(parents):
            if self.room[folder] <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = memoryview(data)[: self.room[folder]]
            self.room[folder] -= len(data)
        return os.pwrite(descriptor, data, position)

    def _pread(self, descriptor: int, count: int, position: int) -> bytes:
        self._check(descriptor)
        return os.pread(descriptor, count, position)

    def read_cached(self, descriptor: int, count: int, position: int) -> bytearray | None:
        self._check(descriptor)
        return super().read_cached(descriptor, count, position)

    def is_cached(self, descriptor: int, count: int, position: int) -> bool:
        self._check(descriptor)
        return super().is_cached(descriptor, count, position)

    def load(self, descriptor: int, count: int, position: int) -> None:
        self._check(descriptor)
        super().load(descriptor, count, position)

    def free_bytes(self, path: Path) -> int:
        self._check(path)
        return self.free[path] if path in self.free else super().free_bytes(path)

    def sync(self, descriptor: int) -> None:
        self._check(descriptor)
        if self.broken_syncs and is_below(path_of(descriptor), self.broken_syncs):
            raise OSError(self.error, os.strerror(self.error))
        super().sync(descriptor)

    def open_for_append(self, path: Path) -> int:
        self._check(path)
        return super().open_for_append(path)

    def open_existing(self, path: Path) -> int:
        self._check(path)
        return super().open_existing(path)

    def open_directory(self, path: Path) -> int:
        self._check(path)
        return super().open_directory(path)

    def truncate(self, descriptor: int, size: int) -> None:
        self._check(descriptor)
        super().truncate(descriptor, size)

    def make_directory(self, path: Path) -> None:
        self._check(path)
        super().make_directory(path)

    def rename(self, path: Path, target: Path) -> None:
        self._check(path)
        super().rename(path, target)

    def lock(self, path: Path) -> int | None:
        self._check(path)
        return super().lock(path)

    def list_names(self, path: Path) -> list[str]:
        self._check(path)
        return super().list_names(path)


def path_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def is_below(path: Path, folders: set[Path]) -> bool:
    return any(folder == path or folder in path.parents for folder in folders)
