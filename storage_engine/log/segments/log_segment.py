"""One segment of a log: a `.log` file of record batches and its indexes. Only whole batches count.

    <base offset>.log        record batches as they came, one after the other, no padding
    <base offset>.index      see indexes
    <base offset>.timeindex  see indexes
    <base offset>.txnindex   see transaction_index
    <base offset>.snapshot   the producers at `base offset`, see producer_snapshots

The base offset in the names has 20 digits. Whatever lies beyond `size` in the `.log` file is not
part of the segment. Entries of the two sparse indexes are never believed: a lookup compares an
entry with the header that it names; where the two do not fit, both indexes are made anew from the
headers. Source: R-LOG1, R-LOG3, R-LOG8.
"""

import logging
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

from storage_engine.core.errors import CorruptRecordError
from storage_engine.log.files.disk import Buffer, Disk
from storage_engine.log.files.segment_files import LogFile, OpenFiles
from storage_engine.log.segments.indexes import (
    MAX_RELATIVE_OFFSET,
    IndexFile,
    OffsetEntry,
    OffsetIndex,
    TimeEntry,
    TimeIndex,
)
from storage_engine.log.segments.transaction_index import TransactionIndex
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
)

logger = logging.getLogger(__name__)


SCAN_BYTES = 8 << 10
"""The bytes of one read of headers: twice the usual distance of two index entries."""


LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
DELETED_SUFFIX = ".deleted"

_OFFSET_STEM = re.compile("[0-9]{20}")


@lru_cache(64)  # Thousands of logs begin at offset 0: they share the names.
def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def offset_in_name(name: str, suffix: str) -> int | None:
    """Return the offset in a file name, the inverse of `file_name`; None for any other name."""
    stem = name.removesuffix(suffix)
    return int(stem) if name.endswith(suffix) and _OFFSET_STEM.fullmatch(stem) else None


class LogSegment:
    """Invariant: base_offset <= next_offset, and a batch ends at `size`."""

    def __init__(
        self,
        disk: Disk,
        pool: OpenFiles,
        directory: Path,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_max_bytes: int,
        created_ms: int,
        size: int = 0,
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.file = LogFile(disk, pool, directory / file_name(base_offset, LOG_SUFFIX))
        self.offset_index = OffsetIndex(
            disk,
            pool,
            directory / file_name(base_offset, INDEX_SUFFIX),
            base_offset,
            index_max_bytes,
        )
        self.time_index = TimeIndex(
            disk,
            pool,
            directory / file_name(base_offset, TIME_INDEX_SUFFIX),
            base_offset,
            index_max_bytes,
        )
        self.transaction_index = TransactionIndex(
            disk, pool, directory / file_name(base_offset, TRANSACTION_INDEX_SUFFIX)
        )
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = created_ms
        self.wrote_ms: int | None = None
        """The time of this process's last write."""
        self.cuts = 0
        """The number of truncations so far, each of which makes earlier slices invalid."""
        self.size = size
        self.next_offset = base_offset
        self.max_timestamp: int | None = NO_TIMESTAMP if size == 0 else None
        """None for a segment from disk until `largest_timestamp` has read it."""
        self.max_timestamp_offset = base_offset
        self.first_timestamp: int | None = None
        self._bytes_since_index = 0
        self._indexed_timestamp = NO_TIMESTAMP
        """At most the last timestamp in the time index; because of it most batches need not read
        the index."""
        self.indexes_full = False
        """True when no batch may follow that would need an entry."""

    def write(self, *pieces: Buffer) -> None:
        """Appends whole batches to the file; they count once `note` was called for each.

        After a failure the file is cut back, and LogStorageError raised.
        """
        self.file.append(pieces, self.size)

    def seal(self) -> None:
        """Writes the indexes to their files, and marks them as complete."""
        self.seal_sparse_indexes()
        self.transaction_index.seal()

    def view(self, position: int, size: int) -> memoryview:
        """Return the bytes, copied when they are few, else mapped."""
        return self.file.view(position, size, self.size)

    def read_bytes(self, position: int, size: int) -> bytes:
        return self.file.read(position, size, self.size)

    def written_ms(self) -> int:
        """Return when it was last written to, by this or an earlier process."""
        if self.wrote_ms is None:
            self.wrote_ms = self._disk.modified_ms(self.file.path)
        return self.wrote_ms

    def time_of_first_batch(self) -> int:
        """Return the timestamp of the first batch; NO_TIMESTAMP while the segment is empty."""
        if self.first_timestamp is None:
            for _, header in self.scan():
                self.first_timestamp = header.max_timestamp
                break
            else:
                return NO_TIMESTAMP
        return self.first_timestamp

    def truncate(self, position: int, next_offset: int) -> None:
        """Cuts the file at the end of a batch."""
        self.cuts += 1
        self.file.truncate(position)
        self.offset_index.truncate_to(position)
        self.time_index.truncate_to(next_offset)
        self.transaction_index.truncate_to(next_offset)
        self.size = position
        self.next_offset = max(self.base_offset, next_offset)
        self._bytes_since_index = 0
        self._indexed_timestamp = NO_TIMESTAMP
        self.indexes_full = False
        if position == 0:
            self.first_timestamp = None
        if self.max_timestamp is None or self.max_timestamp_offset >= self.next_offset:
            self._reload_max_timestamp()

    def close(self) -> None:
        """Closes what is open; the segment opens it again when used."""
        self.offset_index.file.close()
        self.time_index.file.close()
        self.transaction_index.file.close()
        self.file.close()

    def paths(self) -> list[Path]:
        """The log first, the transaction index last."""
        return [self.file.path, *(index.path for index in self._index_files())]

    def folder_is_renamed(self, path: Path) -> None:
        """Records the folder's new path. The files keep their names, and open files stay open."""
        self.directory = path
        for holder in (self.file, *self._index_files()):
            holder.path = path / holder.path.name

    def _index_files(self) -> tuple[IndexFile, IndexFile, IndexFile]:
        return self.offset_index.file, self.time_index.file, self.transaction_index.file

    def mark_deleted(self, number: int) -> list[Path]:
        """Renames the files; readers that have a slice continue. Returns the new paths.

        `number` distinguishes deleted segments of the same base offset.
        """
        renamed = []
        for holder in (self.file, *self._index_files()):
            target = holder.path.with_name(f"{holder.path.name}.{number}{DELETED_SUFFIX}")
            if self._disk.exists(holder.path):
                self._disk.rename(holder.path, target)
                renamed.append(target)
            holder.path = target
        return renamed

    def note(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Counts the next batch in the file, and indexes it when that is due."""
        if max_timestamp > self.max_timestamp:  # type: ignore[operator]  # known in an active segment
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        pending = self._bytes_since_index
        if pending > self.index_interval_bytes:
            self._index_batch(last_offset)
            pending = 0
        self._bytes_since_index = pending + size
        self.size += size
        self.next_offset = last_offset + 1

    def note_run(
        self, sizes: Sequence[int], offsets: Sequence[int], max_timestamps: Sequence[int]
    ) -> None:
        """Does the same as `note` for each of several batches, with `offsets` as
        those of a `StoredRun`; the cost grows with the index entries."""
        count = len(sizes)
        starts = list(accumulate(sizes, initial=self.size))
        begin = 0
        while begin < count:
            # This is the next batch that begins more than an interval after the last entry.
            far = starts[begin] - self._bytes_since_index + self.index_interval_bytes
            due = bisect_right(starts, far, begin, count)
            end = min(due + 1, count)
            latest = max(max_timestamps[begin:end])
            if latest > self.max_timestamp:  # type: ignore[operator]  # known in an active segment
                self.max_timestamp = latest
                first = max_timestamps.index(latest, begin)
                self.max_timestamp_offset = offsets[first + 1] - 1
            if due < count:
                self.size = starts[due]
                self._index_batch(offsets[end] - 1)
                self._bytes_since_index = sizes[due]
            else:
                self._bytes_since_index += starts[count] - starts[begin]
            begin = end
        self.size = starts[count]
        self.next_offset = offsets[count]

    def seal_sparse_indexes(self) -> None:
        """Writes the two sparse indexes to their files, with the entry of the largest timestamp."""
        if self.size and self.max_timestamp is not None and self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.file.flush()
        self.time_index.file.flush()

    def scan(
        self, position: int = 0, stop: int | None = None, *, wait: bool = True
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yields position and header of every batch from the one at `position` to byte `stop` (the
        segment's end).

        Reads a bounded number of bytes at a time; CorruptRecordError for an invalid header.
        ColdBytesError instead of a wait for the medium, unless `wait`, as in the methods below.
        """
        stop = self.size if stop is None else stop
        chunk: bytes | bytearray = b""
        chunk_start = position
        while position < stop:
            at = position - chunk_start
            if len(chunk) - at < HEADER_BYTES:
                chunk = self.file.peek(position, SCAN_BYTES, self.size, wait=wait)
                chunk_start, at = position, 0
            try:
                header = read_header(chunk, at)
            except CorruptRecordError:
                raise self._damaged(position) from None
            following = position + header.size_in_bytes
            if following > stop:
                raise self._damaged(position)
            yield position, header
            position = following

    def find(self, offset: int, *, wait: bool = True) -> tuple[int, BatchHeader] | None:
        """Return the first batch that ends at or after `offset`."""
        start = self._trusted_start(self.offset_index.floor(offset), wait=wait)
        if start is None:
            start = 0
            self.repair_indexes()
        for position, header in self.scan(start, wait=wait):
            if header.last_offset >= offset:
                return position, header
        return None

    def find_time(self, entry: TimeEntry) -> int | None:
        """Return where the batch of the entry begins; None when the entry does not fit the log."""
        found = self.find(entry.last_offset)
        if found is None:
            return None
        position, header = found
        fits = (header.last_offset, header.max_timestamp) == (entry.last_offset, entry.timestamp_ms)
        return position if fits else None

    def boundary_at_or_before(
        self, position: int, start: int, *, wait: bool = True
    ) -> tuple[int, int]:
        """Return the last end of a batch at or before byte `position`, not before `start`; and the
        offset that follows it.
        """
        entry = self.offset_index.floor_of_position(position)
        if entry is not None and entry.position > start:
            indexed = self._indexed(entry, wait=wait)
            if indexed is None:
                self.repair_indexes()
            else:
                start = entry.position
                if position < start + indexed.size_in_bytes <= self.size:
                    # As of nearly every read of large batches, which have an entry each.
                    return start, indexed.base_offset
        for at, header in self.scan(start, wait=wait):
            if at + header.size_in_bytes > position:
                return at, header.base_offset
        return self.size, self.next_offset

    def end_offset_at(self, position: int) -> int:
        """Return the offset after the last batch that ends at or before byte `position`."""
        end_offset = self.base_offset
        entry = self.offset_index.floor_of_position(position - 1)
        start = self._trusted_start(entry)
        for _, header in self.scan(start or 0, position):
            end_offset = header.next_offset
        return end_offset

    def largest_timestamp(self) -> int:
        """Return the largest timestamp; NO_TIMESTAMP when no batch has one. It comes from the time
        index, checked against the batch that the entry names.
        """
        if self.max_timestamp is None:
            entry = self.time_index.last()
            if entry is None or self.find_time(entry) is None:
                self.repair_indexes()
            else:
                self.max_timestamp = entry.timestamp_ms
                self.max_timestamp_offset = entry.last_offset
        assert self.max_timestamp is not None
        return self.max_timestamp

    def load_end(self) -> bool:
        """Finds the end offset and largest timestamp of a segment that was closed properly.

        Returns False when the file does not end with a batch, or an index is missing: then it needs
        recovery.
        """
        if not self._disk.exists(self.offset_index.file.path) or not self._disk.exists(
            self.time_index.file.path
        ):
            return self.size == 0
        start = self._trusted_start(self.offset_index.last())
        last_time = self.time_index.last()
        if start is None or (last_time is None and start > 0):
            return False
        self.max_timestamp = NO_TIMESTAMP
        since_index = 0
        try:
            if last_time is not None:
                position = self.find_time(last_time)
                if position is None:
                    return False
                self.max_timestamp, self.max_timestamp_offset = last_time
                # A crash of the machine may have lost more of one index than of the other.
                start = min(start, position)
            for position, header in self.scan(start):
                if (
                    header.magic != 2
                    or header.last_offset_delta < 0
                    or (position > start and header.base_offset < self.next_offset)
                ):
                    return False
                self.next_offset = header.last_offset + 1
                since_index += header.size_in_bytes
                if header.max_timestamp > self.max_timestamp:
                    self.max_timestamp = header.max_timestamp
                    self.max_timestamp_offset = header.last_offset
        except CorruptRecordError:
            return False
        self._bytes_since_index = since_index
        self.indexes_full = self.offset_index.is_full or self.time_index.is_full
        return True

    def reset(self) -> None:
        """Forgets all batches, not their bytes: `note` counts them again one by one."""
        self.offset_index.file.truncate(0)
        self.time_index.clear()
        self.size = 0
        self.next_offset = self.base_offset
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.first_timestamp = None
        self._bytes_since_index = 0
        self._indexed_timestamp = NO_TIMESTAMP
        self.indexes_full = False

    def repair_indexes(self) -> None:
        """Rebuilds both indexes from the headers; beyond a damaged header nothing is indexed."""
        logger.warning("index damaged, rebuilding segment=%s", self.file.path)
        size, next_offset = self.size, self.next_offset
        latest = self.max_timestamp, self.max_timestamp_offset, self.first_timestamp
        is_known = False
        try:
            self.reset()
            try:
                for position, header in self.scan(0, size):
                    most = self.base_offset + MAX_RELATIVE_OFFSET
                    if not self.next_offset <= header.last_offset <= most:
                        raise self._damaged(position)
                    self.note(header.size_in_bytes, header.last_offset, header.max_timestamp)
            except CorruptRecordError as error:
                logger.error("segment damaged segment=%s error=%s", self.file.path, error)
            is_known = True
        finally:
            # An error of the disk must not make the segment shorter than it is.
            self.size, self.next_offset = size, next_offset
            if not is_known:
                self.max_timestamp, self.max_timestamp_offset, self.first_timestamp = latest
        self.seal_sparse_indexes()
        # No flush would bring the indexes of an older segment to the medium.
        self.offset_index.file.sync()
        self.time_index.file.sync()

    def _index_batch(self, last_offset: int) -> None:
        """Never fails, since the batch is stored already: an index may lack entries."""
        try:
            timestamp = self.max_timestamp
            if timestamp is not None and timestamp > self._indexed_timestamp:
                if self.time_index.append(timestamp, self.max_timestamp_offset):
                    self.indexes_full = True
                self._indexed_timestamp = timestamp
            if self.offset_index.append(last_offset, self.size):
                self.indexes_full = True
        except OSError as error:
            logger.warning("index entry left out segment=%s error=%s", self.file.path, error)
        self._bytes_since_index = 0

    def _trusted_start(self, entry: OffsetEntry | None, *, wait: bool = True) -> int | None:
        """Return where to begin a scan; None when the index entry does not fit the log."""
        if entry is None:
            return 0
        return None if self._indexed(entry, wait=wait) is None else entry.position

    def _indexed(self, entry: OffsetEntry, *, wait: bool = True) -> BatchHeader | None:
        """Return the header of the batch that the index entry names; None when it does not fit the
        log."""
        # The first batch has no entry; one of zeros, as crashes leave them, would fit it.
        if not 0 < entry.position < self.size:
            return None
        chunk = self.file.peek(entry.position, HEADER_BYTES, self.size, wait=wait)
        try:
            header = read_header(chunk)
        except CorruptRecordError:
            return None
        return header if header.last_offset == entry.last_offset else None

    def _reload_max_timestamp(self) -> None:
        """Takes the largest timestamp, after a truncation, from the last entry that is left and the
        batches behind it."""
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        entry = self.time_index.last()
        start = 0
        if entry is not None:
            self.max_timestamp, self.max_timestamp_offset = entry
            found = self.find(entry.last_offset)
            start = found[0] if found is not None else 0
        for _, header in self.scan(start):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset

    def _damaged(self, position: int) -> CorruptRecordError:
        return CorruptRecordError(f"{self.file.path} has no intact batch at byte {position}")
