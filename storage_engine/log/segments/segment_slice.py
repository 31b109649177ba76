"""Finds the bytes of a read: a run of whole batches of one segment, read only when they are needed.

Small runs are copied with one `pread` (cheaper than mapping pages for them); larger ones are views
of the page cache through the segment's mapped window. A slice from before a truncation refuses to
be viewed after it; a view taken before must not be touched after it, because the bytes are gone and
access to them would fault (a system call on them returns an error). Deleted segments do no harm,
since the pages live as long as the view.

A consumer or follower that keeps up asks next for the offset where its last read ended, and all
reads are bounded by the same high watermark; both are found in `ReadPositions` without the index.
Source: R-LOG3, R-LOG5, R-LOG9.
"""

from collections.abc import Sequence

from storage_engine.core.errors import LogStorageError
from storage_engine.log.files.segment_files import COPY_MAX_BYTES, ColdBytesError, LoadJob
from storage_engine.log.segments.log_segment import LogSegment

POSITIONS_MAX = 64
"""The most positions: more than the readers that usually follow one partition."""


class ReadPositions:
    """Offsets and their byte positions."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, tuple[LogSegment, int]] = {}

    def get(self, segment: LogSegment, offset: int) -> int | None:
        """Return the position in `segment` of the first batch that ends at or after `offset`, or of
        the end of the file.
        """
        place = self._places.get(offset)
        return place[1] if place is not None and place[0] is segment else None

    def put(self, segment: LogSegment, offset: int, position: int) -> None:
        places = self._places
        if len(places) >= POSITIONS_MAX and offset not in places:
            del places[next(iter(places))]
        places[offset] = (segment, position)

    def clear(self) -> None:
        self._places.clear()


class SegmentSlice:
    """Implements `core.ports.LogSlice`."""

    __slots__ = ("_copy", "_cuts", "_position", "_size", "_source", "end_offset", "start_offset")

    def __init__(
        self, source: LogSegment, position: int, size: int, start_offset: int, end_offset: int
    ) -> None:
        self._source = source
        self._cuts = source.cuts
        self._copy: bytearray | None = None
        """The bytes, when they were few and in the page cache."""
        self._position = position
        self._size = size
        self.start_offset = start_offset
        """The requested offset; the first batch may begin before it."""
        self.end_offset = end_offset
        """The offset of the next read: the one after the last batch's last, or a later one when a
        gap follows.
        """

    def __len__(self) -> int:
        return self._size

    def view(self) -> memoryview:
        """Return the bytes; LogStorageError when they are no longer there."""
        self._check()
        if self._copy is not None:
            return memoryview(self._copy)
        return self._source.view(self._position, self._size)

    def is_current_in(self, segment: LogSegment) -> bool:
        """Whether these batches are of that segment, and it was not truncated since."""
        return self._source is segment and self._source.cuts == self._cuts

    def is_warm(self) -> bool:
        """Return True when a view of the bytes comes from the page cache, judged by samples. Few
        bytes are copied on the way.
        """
        if self._copy is not None:
            return True
        if self._size > COPY_MAX_BYTES:
            return self._source.file.is_cached(self._position, self._size)
        self._copy = self._source.file.read_cached(self._position, self._size)
        return self._copy is not None

    def load_job(self) -> LoadJob:
        """Return a job that brings the bytes into the page cache, on another thread;
        LogStorageError when the file can't be opened."""
        return self._source.file.load_job(self._position, self._size, self._source.size)

    def nearest_offset(self, offset: int) -> int:
        """Return the offset of the segment that is nearest to the given one. Reports of damage name
        a segment by one of its offsets, and a damaged batch may claim any."""
        return max(self._source.base_offset, min(offset, self._source.next_offset - 1))

    def read_bytes(self) -> bytes:
        self._check()
        return self._source.read_bytes(self._position, self._size)

    def read_part(self, start: int, size: int) -> bytes:
        """Return a copy of `size` bytes from the `start`-th on."""
        self._check()
        if self._copy is not None:
            return bytes(memoryview(self._copy)[start : start + size])
        return self._source.read_bytes(self._position + start, size)

    def read_cached(self, start: int, size: int) -> bytearray | None:
        """Return a copy of `size` bytes from the `start`-th on; None when they are not in the page
        cache."""
        self._check()
        if self._copy is not None:
            return self._copy[start : start + size]
        return self._source.file.read_cached(self._position + start, size)

    def is_part_cached(self, start: int, size: int) -> bool:
        """Return True when a view of these bytes comes from the page cache, judged by samples."""
        return self._copy is not None or self._source.file.is_cached(self._position + start, size)

    def part(self, start: int, end: int) -> "SegmentSlice":
        """Return the bytes from `start` to `end` as a slice of their own, of no use for its
        offsets."""
        part = SegmentSlice(
            self._source, self._position + start, end - start, self.start_offset, self.end_offset
        )
        part._cuts = self._cuts
        return part

    def load_parts(self, parts: Sequence[tuple[int, int]]) -> LoadJob:
        """Return a job that brings some parts, each given by start and end, into the page cache;
        LogStorageError when the file can't be opened."""
        runs = [(self._position + start, end - start) for start, end in parts]
        return self._source.file.load_runs(runs)

    def cold_at(self, start: int) -> ColdBytesError:
        """Return the error for bytes from the `start`-th on that are not in the page cache."""
        return ColdBytesError(self._source.file, self._position + start, self._source.size)

    def note_end(self, positions: ReadPositions, offset: int, size: int) -> None:
        """Records that the batches before `offset` end after `size` bytes."""
        positions.put(self._source, offset, self._position + size)

    def _check(self) -> None:
        if self._source.cuts != self._cuts:
            raise LogStorageError("the log was truncated since these batches were looked up")


def find_slice(
    positions: ReadPositions,
    segments: tuple[LogSegment, ...],
    number: int,
    offset: int,
    *,
    max_bytes: int,
    limit: int,
    at_least_one: bool,
    wait: bool = True,
) -> SegmentSlice | None:
    """Return the batches from `offset`, which lies in segment `number`, to `limit` (exclusive) at
    most; None when nothing fits. `positions` has the ends of recent reads.

    ColdBytesError when finding them would have to wait for the medium, unless `wait`.
    """
    while True:
        segment = segments[number]
        if segment.base_offset >= limit:
            return None
        start = _start(positions, segment, offset, wait)
        if start < segment.size:
            break
        number += 1
        if number == len(segments):
            return None
    bound, bound_offset = _bound(positions, segment, limit, wait)
    if bound <= start:
        return None
    if bound - start <= max_bytes:
        end, end_offset = bound, bound_offset
    else:
        end, end_offset = segment.boundary_at_or_before(start + max_bytes, start, wait=wait)
        if end == start:
            if not at_least_one:
                return None
            header = next(segment.scan(start, wait=wait))[1]
            end, end_offset = start + header.size_in_bytes, header.next_offset
    positions.put(segment, end_offset, end)
    return SegmentSlice(segment, start, end - start, offset, end_offset)


def _start(positions: ReadPositions, segment: LogSegment, offset: int, wait: bool) -> int:
    """Return the position of the first batch that ends at or after `offset`; the segment's size
    when there is none.
    """
    if offset <= segment.base_offset:
        return 0
    position = positions.get(segment, offset)
    if position is not None:
        return position
    found = segment.find(offset, wait=wait)
    return segment.size if found is None else found[0]


def _bound(
    positions: ReadPositions, segment: LogSegment, limit: int, wait: bool
) -> tuple[int, int]:
    """Return where the batches below `limit` end, and the offset of the next read."""
    if segment.next_offset <= limit:
        return segment.size, segment.next_offset
    position = positions.get(segment, limit)
    if position is not None:
        return position, limit
    found = segment.find(limit, wait=wait)
    if found is None:
        return segment.size, segment.next_offset
    position, header = found
    if header.base_offset < limit:
        return position, header.base_offset
    positions.put(segment, limit, position)
    return position, limit
