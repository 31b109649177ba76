"""A place of backups, whichever it is.

A file exists under its name when it is whole, and in a folder when it is on the medium.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from crc32c import crc32c

from storage_engine.backup.errors import BackupStoreError, DamagedError
from storage_engine.backup.manifest import StoredFile
from storage_engine.core.printable import printable

PIECE_BYTES = 4 << 20
"""How much of a file is read at a time."""


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
    """Names are relative to the place of the backups, with slashes. BackupStoreError where a
    request fails."""

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

    def unfinished(self, prefix: str) -> list[str]:
        """Files that have not got their names, of backups that run or were killed. Object stores
        show none, and forget them."""
        return []

    def read(self, name: str) -> bytes:
        return b"".join(self.pieces(name))

    def failed(self, what: str, name: str, reason: str) -> BackupStoreError:
        return BackupStoreError(f"can't {what} {printable(self.url)}/{printable(name)}: {reason}")

    def missing(self, name: str) -> DamagedError:
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
