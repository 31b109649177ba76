"""The aborted transactions whose markers lie in a segment. Entries ascend in their last offsets,
which are those of abort markers of the segment.

An entry of `<base offset>.txnindex` (34 bytes, big endian; the layout is Kafka's):

    field               at  bytes  meaning
    version              0   2     0
    producer_id          2   8
    first_offset        10   8     of the transaction's first record; may lie in an older segment
    last_offset         18   8     of its abort marker
    last_stable_offset  26   8     when it ended: every transaction that has a record below it was
                                   decided by then, so that a search up to there may end here

When the segment is sealed, a seal of the same size follows the entries, of which most segments have
none:

    version              0   2     0x7FFF
    count                2   8     of the entries before it
    crc                 10   8     CRC-32C of all their bytes
    (zero)              18  16

Unlike the sparse indexes the file is no hint: a lost entry would show aborted records. So it is
flushed with the log, and everything below the recovery point has its entries on the medium; and
whatever of a sealed file is changed, cut or gone, the seal tells, so that the index is rebuilt from
the log's markers. (Kafka's files have no seal: one that is cut at an entry passes for whole there.)
Source: KIP-98.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from storage_engine.core.retained.producer_table import AbortedTransaction
from storage_engine.log.files.disk import Disk
from storage_engine.log.files.segment_files import OpenFiles
from storage_engine.log.segments.indexes import IndexFile

ENTRY = struct.Struct(">hqqqq")
VERSION = 0
SEAL_VERSION = 0x7FFF


class TransactionIndex:
    def __init__(self, disk: Disk, pool: OpenFiles, path: Path) -> None:
        self.file = IndexFile(disk, pool, path, ENTRY.size)
        self.is_checked = False
        """True when `problem` found nothing; later entries of this process are right anyway."""
        self.is_unsynced = False
        """True when something has changed since the last flush."""
        self.must_be_sealed = False
        """True when the file has lost its seal, and has to get one again."""
        self.is_being_rebuilt = False
        """True while entries may be missing, because an error ended a rebuild half-way."""
        self._has_seal: bool | None = None
        """True when the file has a seal; None while it is not read yet."""

    def __len__(self) -> int:
        """Return the number of entries, without the seal."""
        return len(self.file) - self.has_seal

    @property
    def has_seal(self) -> bool:
        if self._has_seal is None:
            count = len(self.file)
            self._has_seal = count > 0 and self._version_at(count - 1) == SEAL_VERSION
        return self._has_seal

    def seal(self) -> None:
        """Seals the entries, which are all of the segment; they are in the file when this returns.

        A seal without entries is not synced: its loss is noticed.
        """
        if not self.has_seal:
            count = len(self.file)
            self.file.append(seal_of(b"".join(map(self._bytes_at, range(count)))))
            self._has_seal = True
            self.is_unsynced = self.is_unsynced or count > 0
        self.must_be_sealed = True
        self.file.flush()

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds an entry. The seal of a sealed index is removed, since the segment grows again; the
        index must have been checked."""
        self.unseal()
        self.file.append(ENTRY.pack(VERSION, *aborted))
        self.is_unsynced = True

    def unseal(self) -> None:
        """Removes the seal, so that the segment may get entries again. After an OSError nothing has
        changed."""
        self._keep(len(self))

    def entry(self, number: int) -> AbortedTransaction:
        buffer, at = self.file.locate(number)
        return AbortedTransaction(*ENTRY.unpack_from(buffer, at)[1:])

    def find(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions with data in [start_offset, end_offset), and whether no later
        segment has more."""
        found = []
        count = len(self)
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
        self._keep(bisect_left(range(len(self)), end_offset, key=self._last_offset_at))

    def clear(self) -> None:
        self._keep(0)

    def _keep(self, count: int) -> None:
        """Keeps the first `count` entries, and no seal."""
        if count < len(self.file):
            self.file.truncate(count)
            self.is_unsynced = True
        self._has_seal = self.must_be_sealed = False

    def sync(self) -> None:
        """Brings the entries to the medium."""
        if self.is_unsynced:
            self.file.sync()
            self.is_unsynced = False
        else:
            self.file.flush()

    def problem(self, base_offset: int, next_offset: int) -> str | None:
        """Return what is wrong with the file of a segment of these offsets; None when nothing
        is."""
        if self.is_being_rebuilt:
            return "it was not rebuilt to its end"
        if self.file.has_trailing_bytes:
            return "it does not end with a whole entry"
        if self.has_seal:
            count = len(self)
            if self._bytes_at(count) != seal_of(b"".join(map(self._bytes_at, range(count)))):
                return "its entries and its seal do not agree"
        elif self.must_be_sealed:
            return "it has no seal"
        previous = base_offset - 1
        for number in range(len(self)):
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

    def _bytes_at(self, number: int) -> bytes:
        buffer, at = self.file.locate(number)
        return bytes(buffer[at : at + ENTRY.size])

    def _version_at(self, number: int) -> int:
        buffer, at = self.file.locate(number)
        version: int = ENTRY.unpack_from(buffer, at)[0]
        return version

    def _last_offset_at(self, number: int) -> int:
        return self.entry(number).last_offset


def seal_of(entries: bytes | memoryview) -> bytes:
    """Return the seal that follows these entries in the file of a sealed segment."""
    return ENTRY.pack(SEAL_VERSION, len(entries) // ENTRY.size, crc32c(entries), 0, 0)


def entries(data: bytes | memoryview) -> Iterator[tuple[int, AbortedTransaction]]:
    """Yield version and content of every whole entry in the bytes of a file."""
    whole = len(data) - len(data) % ENTRY.size
    for version, *fields in ENTRY.iter_unpack(data[:whole]):
        yield version, AbortedTransaction(*fields)
