"""A file of a log: the folder, which its files share, and a name, which all logs share. A path of
its own would take 360 bytes, and a log has four files and more.
"""

from pathlib import Path


class NamedFile:
    """Where the file is. Its path is made when it is asked for, in some 2 us."""

    __slots__ = ("_folder", "_name")

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name

    @property
    def path(self) -> Path:
        return self._folder / self._name

    @path.setter
    def path(self, path: Path) -> None:
        self._folder, self._name = path.parent, path.name

    def folder_is_renamed(self, folder: Path) -> None:
        """Records the folder's new path; the file keeps its name."""
        self._folder = folder
