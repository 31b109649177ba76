"""Brings bytes of a file into the page cache. Its one rule: it may run on any thread, so it holds a
descriptor of its own.

Source: R-LOG5.
"""

from pathlib import Path

from storage_engine.core.errors import LogStorageError
from storage_engine.log.disk import Disk
from storage_engine.log.storage_errors import storage_error


class LoadJob:
    """One run of bytes. `run` is called once."""

    __slots__ = ("_ahead", "_descriptor", "_disk", "_path", "_position", "_size")

    def __init__(
        self, disk: Disk, descriptor: int, path: Path, position: int, size: int, *, ahead: int
    ) -> None:
        """Takes over `descriptor`; `ahead` bytes behind the run may be fetched too."""
        self._disk = disk
        self._descriptor = descriptor
        self._path = path
        self._position = position
        self._size = size
        self._ahead = ahead

    def run(self) -> LogStorageError | None:
        """Waits for the medium; what went wrong, for the one who takes care of the log."""
        try:
            self._disk.load(self._descriptor, self._size, self._position, ahead=self._ahead)
        except OSError as error:
            return storage_error("read", self._path, error)
        finally:
            self._disk.close(self._descriptor)
        return None
