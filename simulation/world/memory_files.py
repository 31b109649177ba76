"""Files and folders in memory that record what of them is on the medium. Data that was not synced
may be lost, kept or torn, and a generator decides which.

Fault model, of a machine that loses its power:

    synced            kept as it was at the last sync
    a failed sync     its bytes count as written from then on, as Linux marks the pages clean:
                      readers see them, and no later sync brings them to the medium unless they are
                      written anew; a loss of power leaves what was there before, or zeros
    bytes written     of each write since any prefix, or nothing, of each by itself; where the file
                      grew without its bytes there are zeros
    length            any that the file had since, in the order in which it had them
    names             folder by folder, of the changes since the first few, all or none; of files
                      that are new since, each by itself may be there or not. A rename happens as
                      a whole or not at all

ext4 and XFS keep the order of the names: metadata goes through one journal. btrfs keeps it but for
files that were synced: fsync brings the file's own name to the medium before older changes. POSIX
promises no order at all; that names go in the order in which they went is relied on.
"""

import random

ByteChange = tuple[int, bytes | None]
"""The bytes written at a position, or a new length and None."""

NameChange = tuple[str | None, str | None, "MemoryFile | MemoryFolder"]
"""The removed name, the new name (either may be None), and the file or folder."""


class MemoryFile:
    """The content that readers see, and what is on the medium. Invariant: `buffer` is zero from
    `size` on.
    """

    __slots__ = ("_changes", "_is_unlike_medium", "_synced", "buffer", "modified_ms", "size")

    def __init__(self) -> None:
        self.buffer = bytearray(256)
        """A mapping of the file is a view of it, so it is replaced rather than resized."""
        self.size = 0
        self.modified_ms = 0
        self._synced = b""
        self._changes: list[ByteChange] = []
        """The changes since the last sync."""
        self._is_unlike_medium = False
        """True since a sync has failed: readers see bytes that no sync brings to the medium."""

    def write(self, data: bytes, position: int) -> None:
        self._put(data, position)
        self._changes.append((position, data))

    def truncate(self, size: int) -> None:
        if size != self.size:
            self._set_size(size)
            self._changes.append((size, None))

    def sync(self) -> None:
        if self._changes:
            self._synced = self._written_out()
            self._changes.clear()

    def fail_sync(self) -> None:
        """Lose the bytes of all writes since the last sync for the medium. Lengths go another way
        there, through the journal of the file system."""
        size = len(self._synced)
        lengths: list[ByteChange] = []
        for position, data in self._changes:
            size = position if data is None else max(size, position + len(data))
            lengths.append((size, None))
        self._is_unlike_medium |= any(data is not None for _, data in self._changes)
        self._changes = lengths

    def lose_power(self, choose: random.Random | None) -> None:
        """Keep what a loss of power leaves, which is then on the medium; None: what was synced."""
        changes, self._changes = self._changes, []
        if not changes and not self._is_unlike_medium:
            return
        fate = 0.0 if choose is None else choose.random()
        if choose is not None and fate >= 0.75:
            self._changes = changes
            self._begin_with(self._written_out())
            self._changes = []
        else:
            self._begin_with(self._synced)
        if choose is not None and changes and 0.25 <= fate < 0.75:
            if fate >= 0.5:
                self._keep_the_first(changes, choose)
            else:
                self._keep_some(changes, choose)
        self._synced = bytes(self.buffer[: self.size])
        self._is_unlike_medium = False

    def _written_out(self) -> bytes:
        """Return what the medium has once all changes are written."""
        if not self._is_unlike_medium:
            return bytes(self.buffer[: self.size])
        medium = MemoryFile()
        medium._begin_with(self._synced)
        for position, data in self._changes:
            medium._apply(position, data)
        return bytes(medium.buffer[: medium.size])

    def _keep_the_first(self, changes: list[ByteChange], choose: random.Random) -> None:
        """Keep the first changes, the last of them torn."""
        torn = choose.randrange(len(changes))
        for position, data in changes[:torn]:
            self._apply(position, data)
        position, data = changes[torn]
        if data is not None:
            self._put(data[: choose.randint(0, len(data))], position)

    def _keep_some(self, changes: list[ByteChange], choose: random.Random) -> None:
        """Keep the length of one moment, and bytes of others."""
        known_changes = choose.randint(0, len(changes))
        length = size = self.size
        for number, (position, data) in enumerate(changes):
            size = position if data is None else max(size, position + len(data))
            is_known = number < known_changes
            if is_known:
                length = size
            if data is None:
                if is_known:
                    self._set_size(position)
            elif choose.random() < 0.7:
                self._put(data[: choose.randint(0, len(data))], position)
            elif choose.random() < 0.5:
                self._put(data, position)
        self._set_size(length)

    def _apply(self, position: int, data: bytes | None) -> None:
        if data is None:
            self._set_size(position)
        else:
            self._put(data, position)

    def _begin_with(self, content: bytes) -> None:
        self.buffer = bytearray(content) + bytes(256)
        self.size = len(content)

    def _put(self, data: bytes, position: int) -> None:
        end = position + len(data)
        if end > len(self.buffer):
            self._grow(end)
        self.buffer[position:end] = data
        self.size = max(self.size, end)

    def _set_size(self, size: int) -> None:
        if size < self.size:
            self.buffer[size : self.size] = bytes(self.size - size)
        elif size > len(self.buffer):
            self._grow(size)
        self.size = size

    def _grow(self, size: int) -> None:
        larger = bytearray(2 * size)
        larger[: self.size] = memoryview(self.buffer)[: self.size]
        self.buffer = larger


class MemoryFolder:
    """The names that readers see, and those on the medium."""

    __slots__ = ("_changes", "_synced", "names")

    def __init__(self) -> None:
        self.names: dict[str, MemoryFile | MemoryFolder] = {}
        self._synced: dict[str, MemoryFile | MemoryFolder] = {}
        self._changes: list[NameChange] = []
        """The changes since the last sync."""

    def add(self, name: str, node: "MemoryFile | MemoryFolder") -> None:
        self.names[name] = node
        self._changes.append((None, name, node))

    def remove(self, name: str) -> None:
        self._changes.append((name, None, self.names.pop(name)))

    def rename(self, name: str, target: str) -> None:
        node = self.names.pop(name)
        self.names[target] = node
        self._changes.append((name, target, node))

    def sync(self) -> None:
        if self._changes:
            self._synced = dict(self.names)
            self._changes.clear()

    def lose_power(self, choose: random.Random | None) -> None:
        """Lose names and the files' content as `MemoryFile.lose_power` does."""
        changes, self._changes = self._changes, []
        if changes:
            self.names = dict(self._synced)
            for old_name, new_name, node in _kept_of(changes, choose):
                if old_name is not None and self.names.get(old_name) is node:
                    del self.names[old_name]
                if new_name is not None:
                    self.names[new_name] = node
            self._synced = dict(self.names)
        for node in self.names.values():
            node.lose_power(choose)


def _kept_of(changes: list[NameChange], choose: random.Random | None) -> list[NameChange]:
    fate = 0.0 if choose is None else choose.random()
    if choose is None or fate < 0.2:
        return []
    if fate < 0.4:
        return changes
    if fate < 0.6:
        return changes[: choose.randint(0, len(changes))]
    return _kept_of_new_files(changes, choose)


def _kept_of_new_files(changes: list[NameChange], choose: random.Random) -> list[NameChange]:
    """Return the first few changes without those of some new files; and some changes that were made
    later."""
    first = choose.randint(0, len(changes))
    made = [node for old_name, _, node in changes if old_name is None]
    odd = {id(node) for node in made if choose.random() < 0.4}
    kept = []
    for number, change in enumerate(changes):
        is_odd = id(change[2]) in odd
        if (number < first) != is_odd and (number < first or change[0] is None):
            kept.append(change)
    return kept
