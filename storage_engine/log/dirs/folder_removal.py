"""Removes the folders of deleted partitions in the background."""

import logging
from functools import partial
from pathlib import Path

from storage_engine.core.ports import Background
from storage_engine.log.files.disk import Disk

logger = logging.getLogger(__name__)


class FolderRemoval:
    """A folder that can't be removed is kept for `retry`."""

    def __init__(self, disk: Disk, background: Background | None) -> None:
        """Without `background` folders are removed at once."""
        self._disk = disk
        self._background = background
        self._failed: list[Path] = []

    def remove(self, path: Path) -> None:
        if self._background is not None:
            self._background.submit(
                partial(self._disk.remove_tree, path), _ignore, partial(self._keep, path)
            )
            return
        try:
            self._disk.remove_tree(path)
        except OSError as error:
            self._keep(path, error)

    def retry(self) -> None:
        """Tries again to remove the folders that could not be removed; called once in a while."""
        failed, self._failed = self._failed, []
        for path in failed:
            self.remove(path)

    def _keep(self, path: Path, error: Exception) -> None:
        logger.error("folder not removed, it stays for now folder=%s error=%s", path, error)
        self._failed.append(path)


def _ignore(_result: object) -> None: ...
