"""The batches of a segment, and where they begin: by its two sparse indexes, whose entries are
never believed. A lookup compares an entry with the header that it names; where the two do not fit,
both indexes are made anew from the headers.

Source: R-LOG3, R-LOG8.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from storage_engine.core.errors import CorruptRecordError
from storage_engine.log.files.disk import Disk
from storage_engine.log.segments.log_file import LogFile
from storage_engine.log.segments.offset_index import MAX_RELATIVE_OFFSET, OffsetEntry, OffsetIndex
from storage_engine.log.segments.time_index import TimeEntry, TimeIndex
from storage_engine.protocol.records.record_batch import HEADER_BYTES, BatchHeader, read_header

SCAN_BYTES = 8 << 10
"""The bytes of one read of headers: twice the usual distance of two index entries."""

NO_TIMESTAMP = -1

logger = logging.getLogger(__name__)


class IndexedBatches:
    """A run of offsets. Invariant: base_offset <= next_offset, and a batch ends at `size`."""

    __slots__ = (
        "_bytes_since_index",
        "_disk",
        "_indexed_timestamp",
        "base_offset",
        "file",
        "first_timestamp",
        "index_interval_bytes",
        "indexes_full",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "offset_index",
        "size",
        "time_index",
    )

    def __init__(
        self,
        disk: Disk,
        file: LogFile,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        *,
        base_offset: int,
        index_interval_bytes: int,
        size: int,
    ) -> None:
        self._disk = disk
        self.file = file
        self.offset_index = offset_index
        self.time_index = time_index
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
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

    # -- append ------------------------------------------------------------------------------------

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

    # -- read --------------------------------------------------------------------------------------

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

    # -- change ------------------------------------------------------------------------------------

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

    # -- helpers -----------------------------------------------------------------------------------

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
