"""Backups in a folder. All of it is for its owner alone, since it holds records and credentials."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from storage_engine.backup.errors import BackupStoreError
from storage_engine.backup.store import PIECE_BYTES, BackupStore, FileWriter

_OWNER_ONLY, _OWNER_FOLDER = 0o600, 0o700


class FolderStore(BackupStore):
    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.url = str(self.folder)

    def writer(self, name: str) -> FileWriter:
        path = self.folder / name
        try:
            self._make_folder(path.parent)
            return _FolderWriter(self, name, path)
        except OSError as error:
            raise self._os_failed("write", name, error) from None

    def put_new(self, name: str, data: bytes) -> bool:
        path = self.folder / name
        try:
            self._make_folder(path.parent)
            writer = _FolderWriter(self, name, path)
        except OSError as error:
            raise self._os_failed("write", name, error) from None
        try:
            writer.write(data)
            return writer.close_as_new()
        except BaseException:
            writer.abandon()
            raise

    def pieces(self, name: str) -> Iterator[memoryview]:
        try:
            with (self.folder / name).open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield memoryview(piece)
        except FileNotFoundError:
            raise self.missing(name) from None
        except OSError as error:
            raise self._os_failed("read", name, error) from None

    def names(self, prefix: str) -> list[str]:
        return [path for path in self._files(prefix) if not Path(path).name.startswith(".")]

    def unfinished(self, prefix: str) -> list[str]:
        return [path for path in self._files(prefix) if Path(path).name.startswith(".")]

    def _files(self, prefix: str) -> list[str]:
        base = self.folder / prefix
        try:
            found = [path for path in base.rglob("*") if path.is_file()]
        except OSError as error:
            raise self._os_failed("list", prefix, error) from None
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def delete(self, name: str) -> None:
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._os_failed("delete", name, error) from None

    def _make_folder(self, path: Path) -> None:
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(mode=_OWNER_FOLDER, exist_ok=True)
            sync_folder(each.parent)

    def _os_failed(self, what: str, name: str, error: OSError) -> BackupStoreError:
        reason = error.strerror or str(error)
        return self.failed(what, name, f"{reason}; the backups before are as they were")


class _FolderWriter(FileWriter):
    def __init__(self, store: FolderStore, name: str, path: Path) -> None:
        super().__init__(name)
        self._store = store
        self._path = path
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        self._temporary = Path(temporary)
        self._file: BinaryIO = os.fdopen(handle, "wb")
        os.fchmod(handle, _OWNER_ONLY)

    def _write(self, data: "bytes | memoryview") -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise self._store._os_failed("write", self.name, error) from None

    def _close(self) -> None:
        try:
            self._sync()
            self._temporary.replace(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            raise self._store._os_failed("write", self.name, error) from None

    def close_as_new(self) -> bool:
        """Close, unless there is a file of that name: then False."""
        try:
            self._sync()
            try:
                os.link(self._temporary, self._path)
            except FileExistsError:
                return False
            finally:
                self._temporary.unlink()
            sync_folder(self._path.parent)
        except OSError as error:
            raise self._store._os_failed("write", self.name, error) from None
        return True

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the medium."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
