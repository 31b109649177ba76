"""A flush in two halves. The slow one may run on another thread, so the job holds descriptors of
its own.

Source: R-LOG4.
"""

from collections.abc import Callable
from pathlib import Path

from storage_engine.log.files.disk import Disk


class FlushJob:
    """Brings files of a log to the medium, and the names in its folder when a `directory` is
    given.
    """

    __slots__ = ("_descriptors", "_disk", "_folders", "_on_flushed", "end_offset")

    def __init__(
        self,
        disk: Disk,
        files: list[Path],
        folders: list[Path],
        end_offset: int,
        on_flushed: Callable[[], None],
    ) -> None:
        """Opens all files, so that later changes of their names don't matter; OSError when that
        fails.
        """
        self._disk = disk
        self._on_flushed = on_flushed
        self.end_offset = end_offset
        """All below it is on the medium when the job is done, unless the log was truncated in
        between."""
        self._descriptors: list[int] = []
        self._folders: list[int] = []
        try:
            self._descriptors += map(disk.open_existing, files)
            self._folders += map(disk.open_directory, folders)
        except OSError:
            self._close()
            raise

    @property
    def syncs(self) -> int:
        """Return how many files and folders it brings to the medium, while it has not run."""
        return len(self._descriptors) + len(self._folders)

    def run(self) -> None:
        """Runs the slow half, on any thread; OSError when the medium fails."""
        try:
            for descriptor in self._descriptors:
                self._disk.sync(descriptor)
            for descriptor in self._folders:
                self._disk.sync_names(descriptor)
        finally:
            self._close()

    def finish(self) -> None:
        """Runs the quick half, on the log's own thread, after `run` has succeeded."""
        self._on_flushed()

    def _close(self) -> None:
        for descriptor in (*self._descriptors, *self._folders):
            self._disk.close(descriptor)
        self._descriptors, self._folders = [], []
