"""A flush in two halves: the slow one may run on another thread. Its one rule: it holds descriptors
of its own.

Source: R-LOG4.
"""

from collections.abc import Callable
from pathlib import Path

from storage_engine.log.disk import Disk


class FlushJob:
    """Brings files of a log to the medium, and the names in its folder when a `directory` is
    given.
    """

    __slots__ = ("_descriptors", "_directory", "_disk", "_on_flushed", "end_offset")

    def __init__(
        self,
        disk: Disk,
        paths: list[Path],
        directory: Path | None,
        end_offset: int,
        on_flushed: Callable[[], None],
    ) -> None:
        """Opens the files, so that it does not matter what becomes of their names; OSError when
        that fails.
        """
        self._disk = disk
        self._descriptors = [disk.open_existing(path) for path in paths]
        self._directory = directory
        self._on_flushed = on_flushed
        self.end_offset = end_offset
        """Where the log ended when the flush was asked for."""

    def run(self) -> None:
        """The slow half, on any thread; OSError when the medium fails."""
        try:
            for descriptor in self._descriptors:
                self._disk.sync(descriptor)
            if self._directory is not None:
                self._disk.sync_directory(self._directory)
                self._disk.sync_directory(self._directory.parent)
        finally:
            for descriptor in self._descriptors:
                self._disk.close(descriptor)
            self._descriptors = []

    def finish(self) -> None:
        """The quick half, on the log's own thread, after `run` went well."""
        self._on_flushed()
