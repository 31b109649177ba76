"""Brings bytes of a file into the page cache. It may run on any thread, so it holds a descriptor of
its own.

A caller that must not wait for a disk gets a ColdBytesError, which has the job to run before the
next try.

Source: R-LOG5.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from storage_engine.core.errors import LogStorageError
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.storage_errors import storage_error

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
        """The bytes that it loads at most."""
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
