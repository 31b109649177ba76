"""Checks a segment after an unclean stop. Every intact batch before the first damage is kept, and
nothing after it.

A batch is intact when it lies within the file, is of magic 2, its CRC matches and its offsets go on
where the last ones stopped. Base offset and leader epoch lie outside the CRC; a batch in which they
are damaged is recognised because it does not fit between its neighbours. A segment that begins with
an older leader epoch than the one before it ended with was cut off once: a crash of the machine
brought its name back.

What no flush is known to have brought to the medium is written anew, in place, before it is
checked. After a failed fsync Linux counts the pages as clean: they are read as if nothing had
happened, a later fsync succeeds without writing them, and the next loss of power takes them.
Source: R-LOG8.
"""

import mmap
from collections.abc import Iterator
from typing import NamedTuple

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.replication.leader_epochs import LeaderEpochCache
from storage_engine.log.files.disk import Disk, write_fully
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.offset_index import MAX_RELATIVE_OFFSET
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    crc_matches,
    read_header,
)

CHUNK_BYTES = 1 << 20
COPIED_BATCH_MAX_BYTES = 8 << 20
"""The size up to which a batch is checked in a copy. A larger one is checked through a mapping: a
damaged length must not cost that much memory.
"""


class Cut(NamedTuple):
    """The end of a segment that a recovery dropped."""

    position: int
    dropped_bytes: int
    reason: str


class Recovered(NamedTuple):
    """The result for one segment."""

    cut: Cut | None
    last_epoch: int
    """The leader epoch of the last batch so far, in this segment or one before it."""


def recover_segment(
    disk: Disk,
    segment: LogSegment,
    epochs: LeaderEpochCache,
    *,
    gaps_allowed: bool,
    least_epoch: int = -1,
    rewrites_from: int | None = None,
) -> Recovered:
    """Rebuilds the segment from the bytes of its file, cuts the file at the first damage, and
    records the epochs. The transaction index is left to the caller, which has the producers.

    `gaps_allowed`: offsets may be missing between batches, as compaction leaves them.
    `least_epoch`: the epoch of the batches before it. `rewrites_from`: batches from this offset on
    are written anew; None: nothing is.
    """
    descriptor = segment.file.open()
    file_size = disk.size(descriptor)
    segment.reset()
    checker = _Checker(disk, segment, file_size, rewrites_from)
    # The indexes may be older or newer than the batches that are checked now.
    epochs.truncate_from_end(segment.base_offset)
    epoch = epochs.latest_epoch
    last_epoch = least_epoch
    for _, header in _that_fit_together(checker, segment.base_offset, gaps_allowed, least_epoch):
        segment.note(header.size_in_bytes, header.last_offset, header.max_timestamp)
        last_epoch = header.partition_leader_epoch
        if header.partition_leader_epoch != epoch and header.partition_leader_epoch >= 0:
            epoch = header.partition_leader_epoch
            epochs.assign(epoch, header.base_offset)
    if segment.size < file_size:
        disk.truncate(descriptor, segment.size)
    segment.seal_sparse_indexes()
    if segment.size == file_size:
        return Recovered(None, last_epoch)
    cut = Cut(segment.size, file_size - segment.size, checker.stopped_by)
    return Recovered(cut, last_epoch)


class _Checker:
    """Reads a file up to the first batch that is not intact in itself."""

    def __init__(
        self, disk: Disk, segment: LogSegment, file_size: int, rewrites_from: int | None
    ) -> None:
        self._disk = disk
        self._segment = segment
        self._file_size = file_size
        self._rewrites_from = rewrites_from
        self._rewrites = False
        """True from the first batch on that is to be written anew."""
        self.stopped_by = "end of file"

    def intact_batches(self) -> Iterator[tuple[int, BatchHeader]]:
        position = 0
        chunk = memoryview(b"")
        chunk_start = 0
        while position < self._file_size:
            at = position - chunk_start
            if len(chunk) - at < HEADER_BYTES:
                chunk, chunk_start, at = self._read(position, CHUNK_BYTES), position, 0
            try:
                header = read_header(chunk, at)
            except CorruptRecordError as error:
                self.stopped_by = str(error)
                return
            if not self._rewrites and self._is_to_be_rewritten(header):
                self._rewrites = True
                self._write_anew(position, chunk[position - chunk_start :])
            size = header.size_in_bytes
            problem = self._problem(position, header)
            if problem is None and len(chunk) - at < size:
                chunk, chunk_start, at = self._read(position, max(size, CHUNK_BYTES)), position, 0
            if problem is None and not crc_matches(chunk, at, size):
                problem = "the CRC does not match"
            if problem is not None:
                self.stopped_by = problem
                return
            yield position, header
            position += size

    def _problem(self, position: int, header: BatchHeader) -> str | None:
        if position + header.size_in_bytes > self._file_size:
            return "the batch goes beyond the end of the file"
        if header.magic != MAGIC:
            return f"magic {header.magic}"
        if header.last_offset_delta < 0 or header.base_offset < self._segment.base_offset:
            return "the offsets are impossible"
        if header.last_offset - self._segment.base_offset > MAX_RELATIVE_OFFSET:
            return "the offset is too far from the segment's base offset"
        return None

    def _is_to_be_rewritten(self, header: BatchHeader) -> bool:
        return self._rewrites_from is not None and header.last_offset >= self._rewrites_from

    def _read(self, position: int, size: int) -> memoryview:
        """Return bytes that are on the medium, or will be with the next flush."""
        descriptor = self._segment.file.open()
        size = min(size, self._file_size - position)
        if size <= COPIED_BATCH_MAX_BYTES:
            data = memoryview(self._disk.pread(descriptor, size, position))
        else:
            lead = position % mmap.ALLOCATIONGRANULARITY
            data = self._disk.map(descriptor, size + lead, position - lead)[lead:]
        if self._rewrites:
            self._write_anew(position, data)
        return data

    def _write_anew(self, position: int, data: memoryview) -> None:
        write_fully(self._disk, self._segment.file.open(), data, position)


def _that_fit_together(
    checker: _Checker, base_offset: int, gaps_allowed: bool, epoch: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the intact batches up to the first whose base offset or leader epoch does not fit its
    neighbours; `epoch` is that of the batch before them.
    """
    held: tuple[int, BatchHeader] | None = None
    next_offset = base_offset
    for place in checker.intact_batches():
        if held is None:
            if place[1].partition_leader_epoch < epoch:
                checker.stopped_by = f"it is older than leader epoch {epoch} of the segment before"
                return
        else:
            blamed = _which_is_bad(next_offset, epoch, held[1], place[1])
            if blamed is not held[1]:
                yield held
            if blamed is not None:
                checker.stopped_by = "base offset or leader epoch do not fit the neighbours"
                return
            next_offset, epoch = held[1].next_offset, held[1].partition_leader_epoch
        held = place
    if held is not None:
        if gaps_allowed or held[1].base_offset == next_offset:
            yield held
        else:
            checker.stopped_by = "offsets are missing before the last batch"


def _which_is_bad(
    next_offset: int, epoch: int, former: BatchHeader, latter: BatchHeader
) -> BatchHeader | None:
    """Return the one of two contradicting batches that does not continue from `next_offset` and
    `epoch`.
    """
    if latter.base_offset < former.next_offset:
        return latter if former.base_offset == next_offset else former
    if latter.partition_leader_epoch < former.partition_leader_epoch:
        return latter if latter.partition_leader_epoch < epoch else former
    return None
