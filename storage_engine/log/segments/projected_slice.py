"""Frames with some columns of the typed batches of a slice: what a reader gets that names columns.

Headers and directories are read, a few kilobytes of each batch; the columns stay in the file and
are sent from there. Nothing waits for the medium: what is read here is copied from the page cache,
never touched where it is mapped.
"""

import struct
from collections.abc import Iterator, Sequence

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.ports import SlicedRecords
from storage_engine.core.typed.topic_schema import TopicSchema
from storage_engine.log.files.segment_files import LoadJob
from storage_engine.log.segments.segment_slice import SegmentSlice
from storage_engine.protocol.records.record_batch import HEADER_BYTES, BatchHeader, read_header
from storage_engine.protocol.typed.directory import HEAD_BYTES, MAX_DIRECTORY_BYTES
from storage_engine.protocol.typed.projection import TypedWant, project_stored
from storage_engine.protocol.typed.typed_batch import is_typed

BATCHES_MAX = 64
"""The most batches that one read looks at, however many of them it skips: some three milliseconds.
"""

HEADS_MAX_BYTES = 256 << 10
"""The most bytes of headers and directories of one read, or one batch's: directories of many
columns take longer."""

HEAD_READ_BYTES = 4 << 10
"""The bytes of each batch read at once: header and directory of some sixty columns."""

_DIRECTORY_BYTES = struct.Struct(">4xi")


class _Heads:
    """The batches of a slice, which gives copies of their heads and parts of itself."""

    def __init__(self, records: SegmentSlice, batches_max: int, *, wait: bool) -> None:
        self._records = records
        self._batches_max = batches_max
        self._wait = wait
        self._head = memoryview(b"")
        self._head_at = 0
        self.head_bytes = 0
        """The bytes of all headers and directories."""
        self.ends: dict[int, int] = {}
        """Where the batches end that were gone through, by the offset that follows."""
        self.parts: list[tuple[int, int]] = []
        """Start and end of every piece that is sent from the file."""

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the first batches. They end where the next one's head is not in the page cache;
        ColdBytesError when that is the first."""
        position, size = 0, len(self._records)
        for number in range(self._batches_max):
            if position >= size or self.head_bytes >= HEADS_MAX_BYTES:
                return
            if not self._read_head(position, min(HEADER_BYTES + HEAD_BYTES, size - position)):
                if number:
                    return
                raise self._records.cold_at(position)
            header = read_header(self._head)
            following = position + header.size_in_bytes
            if following > size:
                raise CorruptRecordError(
                    f"the batch at offset {header.base_offset} says it has"
                    f" {header.size_in_bytes} bytes, {size - position} are there"
                )
            if is_typed(header) and not self._has_directory(position, header):
                if number:
                    return
                raise self._records.cold_at(position)
            self.ends[header.next_offset] = following
            yield position, header
            position = following

    def head(self, position: int, header: BatchHeader) -> memoryview:
        """Return what `headers` has read for its last batch."""
        return self._head[: header.size_in_bytes]

    def piece(self, start: int, end: int) -> memoryview | SegmentSlice:
        """Return bytes that were read already, or a part of the slice."""
        at = start - self._head_at
        if at >= 0 and end - self._head_at <= len(self._head):
            return self._head[at : end - self._head_at]
        self.parts.append((start, end))
        return self._records.part(start, end)

    def _has_directory(self, position: int, header: BatchHeader) -> bool:
        """Read the rest of the head, where the directory is long; False when it is not in the page
        cache. The directory's content is checked by its reader."""
        if header.size_in_bytes < HEADER_BYTES + HEAD_BYTES:
            return True
        (directory_bytes,) = _DIRECTORY_BYTES.unpack_from(self._head, HEADER_BYTES)
        needed = HEADER_BYTES + min(max(directory_bytes, 0), MAX_DIRECTORY_BYTES)
        needed = min(needed, header.size_in_bytes)
        self.head_bytes += needed
        return needed <= len(self._head) or self._read_head(position, needed)

    def _read_head(self, position: int, needed: int) -> bool:
        """Read at least `needed` bytes from there on; False when they are not in the page cache."""
        at = position - self._head_at
        if at and at + needed <= len(self._head):
            # Of small batches one read has several.
            self._head, self._head_at = self._head[at:], position
            return True
        records = self._records
        size = min(max(needed, HEAD_READ_BYTES), len(records) - position)
        if self._wait:
            self._head = memoryview(records.read_part(position, size))
        else:
            copy = records.read_cached(position, size)
            if copy is None:
                return False
            self._head = memoryview(copy)
        self._head_at = position
        return True


class ProjectedSlice(SlicedRecords):
    """Frames to be sent, some of their pieces in a segment file."""

    __slots__ = ("_parts", "_records", "batches", "end_offset", "stored_bytes")

    def __init__(
        self,
        records: SegmentSlice,
        pieces: Sequence[bytes | memoryview | SegmentSlice],
        parts: Sequence[tuple[int, int]],
        *,
        end_offset: int,
        stored_bytes: int,
        batches: int,
    ) -> None:
        """`parts` are start and end of the pieces that are in the file."""
        super().__init__(pieces)
        self._records = records
        self._parts = parts
        self.end_offset = end_offset
        """The offset of the next read."""
        self.stored_bytes = stored_bytes
        """The bytes of the slice up to there."""
        self.batches = batches
        """The number of batches that were looked at; more, where they have long directories."""

    def is_warm(self) -> bool:
        """Return True when all pieces are in the page cache, judged by samples."""
        return all(self._records.is_part_cached(start, end - start) for start, end in self._parts)

    def load_job(self) -> LoadJob:
        """Return a job that brings them there, on another thread; LogStorageError when the file
        can't be opened."""
        return self._records.load_parts(self._parts)


def project_slice(
    records: SegmentSlice,
    want: TypedWant,
    schema: TopicSchema | None,
    *,
    limit_bytes: int,
    batches_max: int = BATCHES_MAX,
    wait: bool = False,
) -> ProjectedSlice:
    """Return frames for the first batches of a slice: at least one frame, and not more than
    `limit_bytes` otherwise. ColdBytesError when the first batch's directory is not in the page
    cache, unless `wait`; the errors of `project_stored`."""
    heads = _Heads(records, batches_max, wait=wait)
    projected = project_stored(heads, want, schema, limit_bytes=limit_bytes)
    return ProjectedSlice(
        records,
        projected.pieces,
        heads.parts,
        end_offset=projected.end_offset,
        stored_bytes=heads.ends.get(projected.end_offset, len(records)),
        batches=max(len(heads.ends), heads.head_bytes * BATCHES_MAX // HEADS_MAX_BYTES),
    )
