"""A disk that forgets what was not flushed.

Fault model, at its strictest: after a power failure a file has the content of its last fsync (none:
it is empty), a folder the names of its own last fsync (none: it has no names), and a rename whose
folder was not synced never happened. `root` itself is always there.
"""

import os
import shutil
from pathlib import Path

from storage_engine.log.disk import RealDisk


class VolatileDisk(RealDisk):
    """The real files, and what would be left of them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        self._contents: dict[int, bytes] = {}
        """Inode -> content at its last fsync."""
        self._names: dict[int, dict[str, int]] = {}
        """A folder's inode -> its names at its last fsync, with their inodes."""
        self._kept: dict[int, int] = {}
        """Inode -> a descriptor that keeps the number from being given to another file."""
        self.boots = 0
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        inode = self._keep(descriptor)
        self._contents[inode] = os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def sync_names(self, descriptor: int) -> None:
        self.syncs += 1
        inode = self._keep(descriptor)
        with os.scandir(descriptor) as entries:
            names = {entry.name: entry.inode() for entry in entries}
        for name in names:
            self._keep(os.open(name, os.O_RDONLY, dir_fd=descriptor), own=True)
        self._names[inode] = names

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def lose_power(self) -> None:
        """Leave what is on the medium; nobody may have a file open."""
        self.boots += 1
        saved = self._saved(self._root.stat().st_ino)
        shutil.rmtree(self._root)
        self.close_all()
        self._root.mkdir()
        _restore(self._root, saved)
        self._flush_tree(self._root)

    def close_all(self) -> None:
        for descriptor in self._kept.values():
            os.close(descriptor)
        for known in (self._kept, self._contents, self._names):
            known.clear()

    def _keep(self, descriptor: int, *, own: bool = False) -> int:
        inode = os.fstat(descriptor).st_ino
        if inode not in self._kept:
            self._kept[inode] = descriptor if own else os.dup(descriptor)
        elif own:
            os.close(descriptor)
        return inode

    def _saved(self, folder: int) -> dict:
        saved: dict = {}
        for name, inode in self._names.get(folder, {}).items():
            is_folder = Path(f"/proc/self/fd/{self._kept[inode]}").is_dir()
            saved[name] = self._saved(inode) if is_folder else self._contents.get(inode, b"")
        return saved

    def _flush_tree(self, folder: Path) -> None:
        for path in folder.iterdir():
            if path.is_dir():
                self._flush_tree(path)
                continue
            descriptor = self.open_existing(path)
            self.sync(descriptor)
            self.close(descriptor)
        descriptor = self.open_directory(folder)
        self.sync_names(descriptor)
        self.close(descriptor)


def _restore(folder: Path, saved: dict) -> None:
    for name, what in saved.items():
        if isinstance(what, dict):
            (folder / name).mkdir()
            _restore(folder / name, what)
        else:
            (folder / name).write_bytes(what)
