"""Copies a damaged segment with good bytes in the place of bad ones, on any thread. Every batch is
checked before it is written.

The good bytes wait in a file of the log's folder, `<base offset>.repair.tmp`, which is removed when
the log is opened after a crash. No replica has what lay below the log's start: an empty batch takes
its place, since a log without gaps must not get one. Source: R-LOG8.
"""

from collections.abc import Callable
from pathlib import Path

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.transactions.partition_transactions import AbortedTransaction
from storage_engine.log.cleaning.cleaned_segment import CancelledError
from storage_engine.log.cleaning.segment_scrub import SegmentScrub
from storage_engine.log.files.disk import Disk, write_fully
from storage_engine.log.segments.bad_range import BadRange
from storage_engine.log.segments.log_segment import file_name
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    MAGIC,
    BytesLike,
    crc_matches,
    empty_batch,
    iter_headers,
    read_header,
)

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
