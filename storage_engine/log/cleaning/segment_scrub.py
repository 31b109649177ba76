"""Checks a closed segment piece by piece, on any thread. It only reads.

A batch is good when it lies within the file, its CRC matches, and its offsets and leader epoch go
on where those before it stopped. After a bad one the check goes on at the next good batch: where
the bad one says that it ends, else where an index entry says that one begins. What lies between is
a bad range. Source: R-LOG8.
"""

from bisect import bisect_right

from crc32c import crc32c

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.replication.leader_epochs import EpochStart
from storage_engine.log.files.disk import Disk
from storage_engine.log.segments.bad_range import BadRange
from storage_engine.log.segments.index_check import IndexCheck
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.protocol.records.record_batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    read_header,
)
from storage_engine.protocol.typed.damage import damaged_part

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
