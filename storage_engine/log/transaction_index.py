"""The aborted transactions whose markers lie in a segment. Its one rule: entries ascend in their
last offsets, which are those of abort markers of the segment.

An entry of `<base offset>.txnindex` (34 bytes, big endian; the layout is Kafka's):

    field               at  bytes  meaning
    version              0   2     0
    producer_id          2   8
    first_offset        10   8     of the transaction's first record; may lie in an older segment
    last_offset         18   8     of its abort marker
    last_stable_offset  26   8     when it ended: every transaction that has a record below it was
                                   decided by then, so that a search up to there may end here

The file is empty for most segments, and is there once the segment is sealed. Unlike the sparse
indexes it is no hint: a lost entry would show aborted records. So it is flushed with the log, and
everything below the recovery point has its entries on the medium. Source: KIP-98.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from storage_engine.core.partition_transactions import AbortedTransaction
from storage_engine.log.disk import Disk
from storage_engine.log.index_file import IndexFile
from storage_engine.log.open_files import OpenFiles

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class TransactionIndex:
    """The transaction index of one segment."""

    __slots__ = ("file", "is_checked", "is_unsynced")

    def __init__(self, disk: Disk, pool: OpenFiles, path: Path) -> None:
        self.file = IndexFile(disk, pool, path, ENTRY.size)
        self.is_checked = False
        """Whether `problem` found nothing; what is appended since is sound anyway."""
        self.is_unsynced = False
        """Whether something has changed since the last flush."""

    def __len__(self) -> int:
        return len(self.file)

    def append(self, aborted: AbortedTransaction) -> None:
        self.file.append(ENTRY.pack(VERSION, *aborted))
        self.is_unsynced = True

    def entry(self, number: int) -> AbortedTransaction:
        buffer, at = self.file.locate(number)
        return AbortedTransaction(*ENTRY.unpack_from(buffer, at)[1:])

    def find(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that touch [start_offset, end_offset), and whether no later segment has more."""
        found = []
        count = len(self.file)
        first = bisect_left(range(count), start_offset, key=self._last_offset_at)
        for number in range(first, count):
            aborted = self.entry(number)
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, end_offset: int) -> None:
        """Drops the entries of markers at or after `end_offset`."""
        count = bisect_left(range(len(self.file)), end_offset, key=self._last_offset_at)
        if count < len(self.file):
            self.file.truncate(count)
            self.is_unsynced = True

    def clear(self) -> None:
        """Drops all entries."""
        if len(self.file):
            self.file.truncate(0)
            self.is_unsynced = True

    def sync(self) -> None:
        """The entries are on the medium when this returns."""
        if self.is_unsynced:
            self.file.sync()
            self.is_unsynced = False
        else:
            self.file.flush()

    def problem(self, base_offset: int, next_offset: int) -> str | None:
        """What is wrong with the file for a segment of these offsets; None when it may be
        believed.
        """
        if self.file.has_trailing_bytes:
            return "it does not end with a whole entry"
        previous = base_offset - 1
        for number in range(len(self.file)):
            buffer, at = self.file.locate(number)
            version, *fields = ENTRY.unpack_from(buffer, at)
            aborted = AbortedTransaction(*fields)
            if version != VERSION:
                return f"entry {number} has version {version}"
            if not previous < aborted.last_offset < next_offset:
                return f"entry {number} has last offset {aborted.last_offset}"
            if not 0 <= aborted.first_offset < aborted.last_offset or aborted.producer_id < 0:
                return f"entry {number} is of {aborted.producer_id} from {aborted.first_offset} on"
            if not 0 <= aborted.last_stable_offset <= aborted.last_offset + 1:
                return f"entry {number} has last stable offset {aborted.last_stable_offset}"
            previous = aborted.last_offset
        return None

    def _last_offset_at(self, number: int) -> int:
        return self.entry(number).last_offset


def entries(data: bytes | memoryview) -> Iterator[tuple[int, AbortedTransaction]]:
    """Version and content of every whole entry in the bytes of a file."""
    whole = len(data) - len(data) % ENTRY.size
    for version, *fields in ENTRY.iter_unpack(data[:whole]):
        yield version, AbortedTransaction(*fields)
