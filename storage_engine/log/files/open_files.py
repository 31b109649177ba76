"""The limit of the files that the log keeps open. The owner of an open file or mapping can lose it
at any time, and then opens it again.

With thousands of segments not every file may stay open. The pool keeps the order of opening; over
the limit the oldest is closed, unless it was used since its last turn (second chance).
"""

import resource
from pathlib import Path
from typing import Protocol

from storage_engine.log.files.disk import Disk

SHARE_OF_LIMIT = 2
"""The log takes one in two of the process's descriptors; sockets take the rest."""

MAX_OPEN_FILES = 20_000
"""Well below the kernel's 65,530 mappings a process."""


def descriptor_limit() -> int:
    """Return how many descriptors this process may have."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NO_DESCRIPTOR_LIMIT if soft_limit == resource.RLIM_INFINITY else soft_limit


def pool_limit(descriptors: int) -> int:
    """Return how many of that many descriptors the logs may keep open."""
    return min(MAX_OPEN_FILES, max(1, descriptors // SHARE_OF_LIMIT))


NO_DESCRIPTOR_LIMIT = 1 << 30
"""The limit that is assumed for a process without one; the kernel's own bound (fs.nr_open)."""


class Releasable(Protocol):
    """An open file or mapping that can be opened again."""

    recently_used: bool

    def release(self) -> None:
        """Close it; the owner reopens it when needed."""
        ...


class OpenFiles:
    """The open files and mappings of all logs of a broker."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is taken from the process's own when it is not given."""
        self._limit = limit or pool_limit(descriptor_limit())
        self._items: dict[int, Releasable] = {}
        """The open items by identity, oldest first."""

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Releasable) -> None:
        """Counts `item`, which has just been opened, and releases others over the limit."""
        items = self._items
        items[id(item)] = item
        while len(items) > self._limit:
            key, oldest = next(iter(items.items()))
            del items[key]
            if oldest.recently_used:
                oldest.recently_used = False
                items[key] = oldest
            else:
                oldest.release()

    def discard(self, item: Releasable) -> None:
        """Forgets `item`, which its owner has closed."""
        self._items.pop(id(item), None)


class SegmentFile:
    """The descriptor of one file, opened on first use. Invariant: `descriptor` is -1 while
    closed.
    """

    __slots__ = ("_disk", "_pool", "descriptor", "path", "recently_used")

    def __init__(self, disk: Disk, pool: OpenFiles, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._pool = pool
        self.descriptor = -1
        self.recently_used = False

    def open(self) -> int:
        """Return the descriptor, valid until the next opening of any file."""
        self.recently_used = True
        if self.descriptor < 0:
            self.descriptor = self._disk.open_existing(self.path)
            self._pool.add(self)
        return self.descriptor

    def create(self) -> None:
        """Creates the file, empty, and opens it."""
        self.close()
        self.descriptor = self._disk.open_for_append(self.path)
        self._disk.truncate(self.descriptor, 0)
        self._pool.add(self)

    def release(self) -> None:
        """Closes the descriptor; called by the pool."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            self._disk.close(descriptor)

    def close(self) -> None:
        if self.descriptor >= 0:
            self._pool.discard(self)
            self.release()
