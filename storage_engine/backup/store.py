"""The place of backups: a folder, or a prefix in an S3-compatible store.

A file exists under its name when it is whole, and in a folder when it is on the medium. All files
of a folder are for their owner alone, since they hold records and credentials.
"""

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from crc32c import crc32c

from storage_engine.backup.errors import DamagedError, StoreError
from storage_engine.backup.manifest import StoredFile
from storage_engine.core.errors import ConfigError
from storage_engine.core.printable import printable

PIECE_BYTES = 4 << 20
"""How much of a file is read at a time."""

_OWNER_ONLY, _OWNER_FOLDER = 0o600, 0o700


class FileWriter(ABC):
    """A new file. Invariant: nothing has its name before `close`, which tells what was written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.crc = 0

    def write(self, data: "bytes | memoryview") -> None:
        self._write(data)
        self.size += len(data)
        self.crc = crc32c(data, self.crc)

    def close(self) -> StoredFile:
        self._close()
        return StoredFile(name=self.name, size=self.size, crc=self.crc)

    @abstractmethod
    def _write(self, data: "bytes | memoryview") -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def abandon(self) -> None:
        """Leave no file."""


class BackupStore(ABC):
    """Names are relative to the place of the backups, with slashes. StoreError where a request
    fails."""

    url: str

    @abstractmethod
    def writer(self, name: str) -> FileWriter: ...

    @abstractmethod
    def put_new(self, name: str, data: bytes) -> bool:
        """Write a small file; False where one of that name is there already."""

    @abstractmethod
    def pieces(self, name: str) -> Iterator[memoryview]:
        """Yield the content. DamagedError where there is no such file."""

    @abstractmethod
    def names(self, prefix: str) -> list[str]: ...

    @abstractmethod
    def delete(self, name: str) -> None:
        """Nothing happens where there is no such file."""

    def read(self, name: str) -> bytes:
        return b"".join(self.pieces(name))

    def _failed(self, what: str, name: str, reason: str) -> StoreError:
        return StoreError(f"can't {what} {printable(self.url)}/{printable(name)}: {reason}")

    def _missing(self, name: str) -> DamagedError:
        return DamagedError(
            f"{printable(self.url)}/{printable(name)} is missing: take another backup "
            "(headrace backup --list)"
        )


def checked_pieces(store: BackupStore, file: StoredFile) -> Iterator[memoryview]:
    """Yield a file's content; DamagedError, at its end, where it is not what was written."""
    size = crc = 0
    for piece in store.pieces(file.name):
        size += len(piece)
        crc = crc32c(piece, crc)
        yield piece
    if (size, crc) != (file.size, file.crc):
        raise DamagedError(
            f"{printable(store.url)}/{printable(file.name)} is damaged: it has {size} bytes and "
            f"the checksum {crc:08x}, {file.size} bytes and {file.crc:08x} were written; take "
            "another backup (headrace backup --list)"
        )


def open_store(place: str, options: Mapping[str, str] | None = None) -> BackupStore:
    """ConfigError for a place that can't be one."""
    if not place:
        raise ConfigError("the place of the backups is empty: name a folder, or s3://bucket/prefix")
    if "://" not in place:
        return FolderStore(Path(place))
    parts = urlsplit(place)
    if parts.scheme == "file":
        return FolderStore(Path(unquote(parts.path)))
    if parts.scheme != "s3":
        raise ConfigError(
            f"{printable(place)}: '{printable(parts.scheme)}' is not supported: use a folder, or "
            "s3://bucket/prefix"
        )
    try:
        from storage_engine.backup.object_store import ObjectBackupStore
    except ModuleNotFoundError:
        raise ConfigError(
            "backups in an object store need the extra backup: pip install 'headrace[backup]'"
        ) from None
    return ObjectBackupStore(place.rstrip("/"), dict(options or {}))


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
            raise self._missing(name) from None
        except OSError as error:
            raise self._os_failed("read", name, error) from None

    def names(self, prefix: str) -> list[str]:
        base = self.folder / prefix
        try:
            found = [path for path in base.rglob("*") if path.is_file()]
        except OSError as error:
            raise self._os_failed("list", prefix, error) from None
        names = [path.relative_to(self.folder).as_posix() for path in found]
        return sorted(name for name in names if not Path(name).name.startswith("."))

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

    def _os_failed(self, what: str, name: str, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        return self._failed(what, name, f"{reason}; the backups before are as they were")


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
