"""Checks a closed segment piece by piece, and copies a damaged one with good bytes in the place of
bad ones; on any thread.

A batch is good when it lies within the file, its CRC matches, and its offsets and leader epoch go
on where those before it stopped. After a bad one the check goes on at the next good batch: where
the bad one says that it ends, else where an index entry says that one begins. What lies between is
a bad range.

The good bytes wait in a file of the log's folder, `<base offset>.repair.tmp`, which is removed when
the log is opened after a crash. No replica has what lay below the log's start: an empty batch takes
its place, since a log without gaps must not get one. Source: R-LOG8.
"""

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.replication.leader_epochs import EpochStart
from storage_engine.core.retained.producer_table import AbortedTransaction
from storage_engine.log.cleaning.compaction_job import CancelledError
from storage_engine.log.files.disk import Disk, write_fully
from storage_engine.log.segments.indexes import IndexCheck
from storage_engine.log.segments.log_segment import LogSegment, file_name
from storage_engine.protocol.records.record_batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    BytesLike,
    crc_matches,
    empty_batch,
    iter_headers,
    read_header,
)
from storage_engine.protocol.typed.damage import damaged_part


class BadRange(NamedTuple):
    """Bytes that differ from what was appended; offsets and byte positions are half-open."""

    start_offset: int
    end_offset: int
    position: int
    end_position: int
    reason: str


PIECE_BYTES = 1 << 20

LOOKED_INTO_BYTES = 16 << 20
"""The largest damaged batch that is read again to say what of it is damaged."""


class SegmentScrub:
    """One segment as it is when the scrub begins. Invariant: everything before `position` is good
    or in `bad_ranges`.
    """

    def __init__(
        self,
        disk: Disk,
        segment: LogSegment,
        *,
        epochs: tuple[EpochStart, ...],
        gaps_allowed: bool,
    ) -> None:
        """`epochs` are those of the log; batches below the first are not compared with any.

        `gaps_allowed`: offsets may be missing, as compaction leaves them.
        """
        self._disk = disk
        self.segment = segment
        self.base_offset = segment.base_offset
        self.end_offset = segment.next_offset
        self.size = segment.size
        self.path = segment.file.path
        self._cuts = segment.cuts
        self._epochs = epochs
        self.gaps_allowed = gaps_allowed
        self.bad_ranges: list[BadRange] = []
        self.is_done = False
        self.position = 0
        self._next_offset = self.base_offset
        self._jumped_from: tuple[int, int] | None = None
        """The position and expected offset of the last batch, when it left out offsets: only the
        one after it shows whether it was right."""
        self._indexes: IndexCheck | None = None

    @property
    def indexes_agree(self) -> bool:
        return self._indexes is not None and self._indexes.agrees

    @property
    def is_outdated(self) -> bool:
        """Return True when the segment was truncated, moved or deleted since, so that the result is
        void."""
        return self.segment.cuts != self._cuts or self.segment.file.path != self.path

    def step(self) -> int:
        """Checks the next piece; returns the bytes read. OSError when the disk fails."""
        descriptor = self._disk.open_existing(self.path)
        try:
            if self._indexes is None:
                self._indexes = IndexCheck(
                    self._disk,
                    offset_index=self.segment.offset_index.file.path,
                    time_index=self.segment.time_index.file.path,
                    base_offset=self.base_offset,
                )
            return self._step(descriptor, self._indexes)
        finally:
            self._disk.close(descriptor)

    def _step(self, descriptor: int, indexes: IndexCheck) -> int:
        start = self.position
        piece = memoryview(self._read(descriptor, start, PIECE_BYTES))
        piece_end = start + len(piece)
        while self.position < self.size:
            at = self.position - start
            if at and len(piece) - at < HEADER_BYTES and piece_end < self.size:
                return at
            header, problem = self._header(piece, at, self.position)
            if header is not None and problem is None:
                following = self.position + header.size_in_bytes
                if at and following > piece_end:
                    # A batch larger than a piece is checked when a piece begins with it.
                    return at
                problem = self._contradiction(header)
                if problem is None and not self._crc_matches(descriptor, piece, at, self.position):
                    problem = self._wrong_crc(descriptor, header)
            if header is None or problem is not None:
                self._skip(descriptor, indexes, header, problem or "no batch")
                return max(at, 1)
            indexes.take(self.position, header)
            jumped = header.base_offset > self._next_offset
            self._jumped_from = (self.position, self._next_offset) if jumped else None
            self.position += header.size_in_bytes
            self._next_offset = header.next_offset
        self._finish(indexes)
        return max(len(piece), 1)

    def _read(self, descriptor: int, position: int, size: int) -> bytes:
        return self._disk.read_once(descriptor, min(size, self.size - position), position)

    def _header(
        self, data: memoryview, at: int, position: int
    ) -> tuple[BatchHeader | None, str | None]:
        """Return the header at a position, and why it is impossible; (None, reason) for bytes that
        can't be one."""
        try:
            header = read_header(data, at)
        except CorruptRecordError as error:
            return None, str(error)
        if position + header.size_in_bytes > self.size:
            return None, "the batch goes beyond the end of the file"
        return header, None if header.magic == MAGIC else f"magic {header.magic}"

    def _crc_matches(self, descriptor: int, data: memoryview, at: int, position: int) -> bool:
        header = read_header(data, at)
        end = at + header.size_in_bytes
        if end <= len(data):
            return bool(crc32c(data[at + ATTRIBUTES_AT : end]) == header.crc)
        crc = 0
        stop = position + header.size_in_bytes
        position += ATTRIBUTES_AT
        while position < stop:
            part = self._read(descriptor, position, min(PIECE_BYTES, stop - position))
            if not part:
                return False
            crc = crc32c(part, crc)
            position += len(part)
        return crc == header.crc

    def _wrong_crc(self, descriptor: int, header: BatchHeader) -> str:
        size = header.size_in_bytes
        if size > LOOKED_INTO_BYTES:
            return "the CRC does not match"
        batch = self._read(descriptor, self.position, size)
        return f"the CRC does not match{damaged_part(header, batch)}"

    def _contradiction(self, header: BatchHeader) -> str | None:
        """Return what in the header contradicts the batches before it; None when nothing does."""
        expected, base = self._next_offset, header.base_offset
        if not expected <= base <= header.last_offset < self.end_offset:
            return f"offset {base} does not follow {expected - 1}"
        if base > expected and not self.gaps_allowed:
            return f"the offsets from {expected} to {base - 1} are missing"
        return self._wrong_epoch(header)

    def epoch_at(self, offset: int, *, otherwise: int) -> int:
        """The leader epoch in which the offset was written, where the log still knows it."""
        number = bisect_right(self._epochs, offset, key=_start_of)
        return self._epochs[number - 1].epoch if number else otherwise

    def _wrong_epoch(self, header: BatchHeader) -> str | None:
        found = header.partition_leader_epoch
        known = self.epoch_at(header.base_offset, otherwise=found)
        return None if found == known else f"leader epoch {found} instead of {known}"

    def _skip(
        self, descriptor: int, indexes: IndexCheck, header: BatchHeader | None, reason: str
    ) -> None:
        """Notes the bad range from here to the next good batch, and goes on there."""
        position, start_offset = self.position, self._next_offset
        candidates = indexes.places_after(position)
        if header is not None:
            candidates.append(position + header.size_in_bytes)
            if self._jumped_from is not None:
                # Perhaps the batch before this one is the wrong one.
                candidates.append(position)
                position, start_offset = self._jumped_from
            elif self._only_misses_some(descriptor, header):
                candidates.append(position)
        self._jumped_from = None
        end_position, end_offset = self.size, self.end_offset
        for candidate in sorted(set(candidates)):
            found = self._good_batch(descriptor, candidate, start_offset)
            if found is not None:
                end_position, end_offset = candidate, found.base_offset
                break
        self.bad_ranges.append(BadRange(start_offset, end_offset, position, end_position, reason))
        self.position, self._next_offset = end_position, end_offset

    def _only_misses_some(self, descriptor: int, header: BatchHeader) -> bool:
        """Return True when a batch with too high an offset is right, as the one after it shows."""
        if header.base_offset <= self._next_offset:
            return False
        following = self.position + header.size_in_bytes
        after = self._good_batch(descriptor, following, self._next_offset)
        return after is None or after.base_offset >= header.next_offset

    def _good_batch(self, descriptor: int, position: int, least_offset: int) -> BatchHeader | None:
        """Return the batch there, if it is intact and may follow `least_offset`."""
        if position >= self.size:
            return None
        data = memoryview(self._read(descriptor, position, HEADER_BYTES))
        header, problem = self._header(data, 0, position)
        if (
            header is None
            or problem is not None
            or not least_offset <= header.base_offset <= header.last_offset < self.end_offset
            or self._wrong_epoch(header)
            or not self._crc_matches(descriptor, data, 0, position)
        ):
            return None
        return header

    def _finish(self, indexes: IndexCheck) -> None:
        self.is_done = True
        indexes.finish()
        if self._next_offset < self.end_offset and (
            not self.gaps_allowed or indexes.has_place_at_or_after(self.size)
        ):
            self.bad_ranges.append(
                BadRange(
                    self._next_offset, self.end_offset, self.size, self.size, "the end is missing"
                )
            )


def _start_of(entry: EpochStart) -> int:
    return entry.start_offset


REPAIR_SUFFIX = ".repair.tmp"

_CHUNK_BYTES = 1 << 20


class Replacements:
    """The good batches of other replicas for the bad ranges of one segment, in order."""

    def __init__(self, disk: Disk, scrub: SegmentScrub) -> None:
        """OSError when the file can't be created."""
        self._disk = disk
        self._gaps_allowed = scrub.gaps_allowed
        self._path: Path = scrub.path.with_name(file_name(scrub.base_offset, REPAIR_SUFFIX))
        self._ends: list[int] = []
        self._size = 0
        self._range_size = 0
        self._first_offset: int | None = None
        """The first offset of the batches for the present range; None when none has come yet."""
        self._first_offsets: list[int | None] = []
        disk.remove(self._path)
        disk.close(disk.open_for_append(self._path))

    def add(self, bad: BadRange, next_offset: int, data: memoryview) -> int:
        """Takes the batches of an answer that lie in `bad` from `next_offset` on; returns the
        offset that follows, which is `bad.end_offset` when the range is complete.

        CorruptRecordError when they are damaged too or do not fit; OSError when the disk fails.
        """
        taken = 0
        reached = next_offset
        for position, header in iter_headers(data):
            size = header.size_in_bytes
            if header.base_offset >= bad.end_offset:
                reached = self._reach(bad.end_offset, reached)
                break
            if header.magic != MAGIC or not crc_matches(data, position, size):
                raise CorruptRecordError(f"its batch at offset {header.base_offset} is damaged too")
            if header.base_offset < bad.start_offset or header.next_offset > bad.end_offset:
                raise CorruptRecordError(
                    f"its batch [{header.base_offset}, {header.next_offset}) does not belong to it"
                )
            if header.last_offset < header.base_offset or (header.base_offset < reached and taken):
                raise CorruptRecordError("its batches contradict each other")
            self._reach(header.base_offset, reached)
            reached = header.next_offset
            taken = position + size
        if taken:
            if self._first_offset is None:
                self._first_offset = read_header(data).base_offset
            descriptor = self._disk.open_existing(self._path)
            try:
                write_fully(self._disk, descriptor, data[:taken], self._size + self._range_size)
            finally:
                self._disk.close(descriptor)
            self._range_size += taken
        return reached

    def end_range(self) -> None:
        """Ends a range that is complete."""
        self._size += self._range_size
        self._range_size = 0
        self._ends.append(self._size)
        self._first_offsets.append(self._first_offset)
        self._first_offset = None

    def drop_range(self) -> None:
        """Forgets the batches of the present range, because another replica is asked."""
        self._range_size = 0
        self._first_offset = None

    def missing_before(self, number: int, bad: BadRange) -> range:
        """Return the offsets at the beginning of a range for which no batch came."""
        first = self._first_offsets[number]
        return range(bad.start_offset, bad.end_offset if first is None else first)

    def of_range(self, number: int, write: Callable[[BytesLike], None]) -> None:
        """Passes the batches of a range to `write`."""
        start = self._ends[number - 1] if number else 0
        descriptor = self._disk.open_existing(self._path)
        try:
            _copy(self._disk, descriptor, start, self._ends[number], write)
        finally:
            self._disk.close(descriptor)

    def remove(self) -> None:
        """Removes the file; OSError when the disk fails."""
        self._disk.remove(self._path)

    def _reach(self, offset: int, reached: int) -> int:
        if offset > reached and not self._gaps_allowed:
            raise CorruptRecordError(f"it lacks the offsets from {reached} to {offset - 1}")
        return offset


class SegmentPatch:
    """A `SegmentCopier` of one segment."""

    def __init__(
        self,
        disk: Disk,
        scrub: SegmentScrub,
        replacements: Replacements,
        aborted: tuple[AbortedTransaction, ...],
    ) -> None:
        """`aborted`: the transactions whose abort markers lie in the segment."""
        self._aborted = aborted
        self._disk = disk
        self._scrub = scrub
        self._replacements = replacements
        self.is_cancelled = False
        self.end_offset = scrub.end_offset

    def prepare(self) -> None:
        """Does nothing: this copier needs no preparation."""

    def copy(
        self,
        group: slice,
        write: Callable[[BytesLike], None],
        note_aborted: Callable[[AbortedTransaction], None],
    ) -> bool:
        """Writes the good batches of the segment, with the replacements between; returns True."""
        for aborted in self._aborted:
            note_aborted(aborted)

        scrub = self._scrub
        latest_epoch = -1

        def checked(batch: BytesLike) -> None:
            nonlocal latest_epoch
            if self.is_cancelled:
                raise CancelledError
            write(batch)
            latest_epoch = read_header(batch).partition_leader_epoch

        position = 0
        descriptor = self._disk.open_existing(scrub.path)
        try:
            for number, bad in enumerate(scrub.bad_ranges):
                _copy(self._disk, descriptor, position, bad.position, checked)
                missing = self._replacements.missing_before(number, bad)
                if missing and not scrub.gaps_allowed:
                    checked(
                        empty_batch(
                            base_offset=missing.start,
                            next_offset=missing.stop,
                            leader_epoch=scrub.epoch_at(missing.start, otherwise=latest_epoch),
                        )
                    )
                self._replacements.of_range(number, checked)
                position = bad.end_position
            _copy(self._disk, descriptor, position, scrub.size, checked)
        finally:
            self._disk.close(descriptor)
        return True


def _copy(
    disk: Disk, descriptor: int, position: int, stop: int, write: Callable[[BytesLike], None]
) -> None:
    """Passes the batches of [position, stop) to `write`; CorruptRecordError when one is damaged."""
    while position < stop:
        data = disk.read_once(descriptor, min(_CHUNK_BYTES, stop - position), position)
        header = read_header(data)
        if header.size_in_bytes > len(data) and header.size_in_bytes <= stop - position:
            data = disk.read_once(descriptor, header.size_in_bytes, position)
        view = memoryview(data)
        taken = 0
        for at, found in iter_headers(view):
            size = found.size_in_bytes
            if not crc_matches(view, at, size):
                raise CorruptRecordError(f"the batch at byte {position + at} is damaged")
            write(view[at : at + size])
            taken = at + size
        if not taken:
            raise CorruptRecordError(f"no batch at byte {position}")
        position += taken


assert HEADER_BYTES < _CHUNK_BYTES, "a chunk must hold a header"
