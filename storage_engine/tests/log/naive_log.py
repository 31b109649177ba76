"""A log as a list of segments, each a list of batches, each a list of records: what the log must be
after any row of operations, worked out the slow way. It knows what the log promises, and nothing of
how the log does it.
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.records.record_batch import BatchHeader, iter_headers, read_header
from storage_engine.protocol.records.record_decoder import decode_batches


class Record(NamedTuple):
    """A record as a reader sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True)
class Batch:
    """A batch as it lies in the log."""

    data: bytes
    header: BatchHeader
    records: tuple[Record, ...]

    @property
    def next_offset(self) -> int:
        return self.header.next_offset


def batches_of(data: bytes) -> list[Batch]:
    """The batches that bytes of a log hold."""
    batches = []
    for position, header in iter_headers(memoryview(data)):
        own = data[position : position + header.size_in_bytes]
        columns: list[list] = [[], [], [], []]
        if header.records_count:
            decoded = decode_batches(memoryview(own))
            columns = [
                column.to_pylist()
                for column in (decoded.offsets, decoded.keys, decoded.values, decoded.timestamps_ms)
            ]
        records = tuple(Record(*fields) for fields in zip(*columns, strict=True))
        batches.append(Batch(own, header, records))
    return batches


def placed(
    data: bytes, base_offset: int, epoch: int, rows: list[tuple[bytes | None, bytes | None, int]]
) -> Batch:
    """A producer's batch in the place that a leader of `epoch` gives it; `rows`: keys, values and
    times of its records."""
    place = struct.pack(">q", base_offset), data[8:12], struct.pack(">i", epoch)
    data = b"".join(place) + data[16:]
    records = tuple(Record(base_offset + number, *row) for number, row in enumerate(rows))
    return Batch(data, read_header(data), records)


FILE_MS = 1 << 60


@dataclass
class Segment:
    """Its base offset is its name; `created_ms` is when it was begun or loaded, `written_ms` when
    it was last appended to. By its file, once it was closed or made anew: then in the future of the
    test's clock."""

    base_offset: int
    created_ms: int
    batches: list[Batch] = field(default_factory=list)
    written_ms: int = FILE_MS

    @property
    def data(self) -> bytes:
        return b"".join(batch.data for batch in self.batches)

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def largest_timestamp(self) -> int:
        return max((batch.header.max_timestamp for batch in self.batches), default=-1)


class NaiveLog:
    """Invariant: `segments` is not empty, and their base offsets ascend."""

    def __init__(self, config: LogConfig, now_ms: int) -> None:
        self.config = config
        self.segments = [Segment(0, now_ms)]
        self.start = 0
        self.end = 0
        self.first_dirty = 0
        self.delete_horizons: dict[int, int] = {}
        """By the offset of a tombstone: when a pass may drop it."""

    # -- what is in it -----------------------------------------------------------------------------

    @property
    def batches(self) -> list[Batch]:
        """Return the batches that readers get."""
        return [b for s in self.segments for b in s.batches if b.next_offset > self.start]

    def records(self, end_offset: int) -> list[Record]:
        """Return the records that readers get, below `end_offset`."""
        return [r for b in self.batches for r in b.records if self.start <= r.offset < end_offset]

    def boundary(self, share: float, low: int) -> int:
        """An offset where a batch ends, or `low`: `share` of the way from there to the end."""
        ends = [low, *(b.next_offset for b in self.batches if b.next_offset > low)]
        return ends[round(share * (len(ends) - 1))]

    def next_offset_of(self, segment: Segment) -> int:
        number = self.segments.index(segment) + 1
        return self.segments[number].base_offset if number < len(self.segments) else self.end

    # -- append ------------------------------------------------------------------------------------

    def append(self, run: list[Batch], now_ms: int, has_segment: Callable[[int], bool]) -> None:
        """`has_segment`: whether the log has begun a segment at that offset. It must where size or
        age ask for it, and may where an index can be full."""
        active = self.segments[-1]
        first, last = run[0].header.base_offset, run[-1].next_offset - 1
        base_offset = self.end if last - self.end <= 0x7FFFFFFF else first
        if active.batches:
            must = self._is_too_large(active, run) or self._is_too_old(active, run, now_ms)
            rolled = active.base_offset != base_offset and has_segment(base_offset)
            index_bytes = self.config.segment_index_bytes
            may = len(active.batches) >= min(index_bytes // 8, max(2, index_bytes // 12) - 1)
            assert rolled or not must, f"no segment begins at {base_offset}"
            assert must or may or not rolled, f"a segment begins at {base_offset}"
            if rolled:
                active = Segment(base_offset, now_ms)
                self.segments.append(active)
        active.batches += run
        active.written_ms = now_ms
        self.end = run[-1].next_offset

    def _is_too_large(self, active: Segment, run: list[Batch]) -> bool:
        return active.size + sum(len(b.data) for b in run) > self.config.segment_bytes

    def _is_too_old(self, active: Segment, run: list[Batch], now_ms: int) -> bool:
        """By the times of the records if they have any."""
        first = active.batches[0].header.max_timestamp
        latest = max(batch.header.max_timestamp for batch in run)
        has_times = 0 <= first <= now_ms and latest >= 0
        age_ms = latest - first if has_times else now_ms - active.created_ms
        return age_ms > self.config.segment_ms

    # -- cut ---------------------------------------------------------------------------------------

    def truncate(self, offset: int, now_ms: int) -> None:
        if offset >= self.end:
            return
        if offset <= self.segments[0].base_offset or offset < self.start:
            self.begin_anew(offset, now_ms)
            return
        self.segments = [s for s in self.segments if s.base_offset <= offset]
        active = self.segments[-1]
        active.batches = [b for b in active.batches if b.next_offset <= offset]
        self.end = active.batches[-1].next_offset if active.batches else active.base_offset
        self.first_dirty = min(self.first_dirty, self.end)
        if self.end < self.start:
            self.begin_anew(self.start, now_ms)

    def begin_anew(self, offset: int, now_ms: int) -> None:
        self.segments = [Segment(offset, now_ms)]
        self.start = self.end = offset
        self.first_dirty = min(self.first_dirty, offset)
        self.delete_horizons = {}

    def delete_records(self, offset: int) -> None:
        self.start = max(self.start, offset)
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.start:
            del self.segments[0]

    def apply_retention(self, now_ms: int, high_watermark: int) -> int:
        """How many segments went that were not below the start."""
        self.delete_records(self.start)
        filled = [s for s in self.segments if s is not self.segments[-1] or s.batches]
        committed = list(takewhile(lambda s: self.next_offset_of(s) <= high_watermark, filled))
        limit = self.config.retention_bytes
        rest = sum(segment.size for segment in filled)
        by_size = 0
        if limit >= 0 and self.config.deletes_old_segments:
            for segment in committed:
                rest -= segment.size
                by_size += rest >= limit
        by_time = 0
        if self.config.retention_ms >= 0 and self.config.deletes_old_segments:
            by_time = len(list(takewhile(lambda s: self._is_expired(s, now_ms), committed)))
        count = max(by_time, min(by_size, len(self.segments) - 1))
        if count == len(self.segments):
            self.segments.append(Segment(self.end, now_ms))
        del self.segments[:count]
        self.start = max(self.start, self.segments[0].base_offset)
        return count

    def _is_expired(self, segment: Segment, now_ms: int) -> bool:
        latest = segment.largest_timestamp
        # A time that can't be is none.
        begins = latest if 0 <= latest <= now_ms else segment.written_ms
        return not segment.size or now_ms - begins > self.config.retention_ms

    def expect_gaps(self) -> None:
        """Offsets are missing, or may be: kept as a first dirty offset above 0."""
        self.first_dirty = max(self.first_dirty, 1)

    # -- compact -----------------------------------------------------------------------------------

    def cleanable_end(self, safe_offset: int, now_ms: int) -> int:
        """Up to where a pass may clean."""
        lag_ms = self.config.min_compaction_lag_ms

        def is_ready(segment: Segment) -> bool:
            is_clean = self.next_offset_of(segment) <= self.first_dirty
            is_old = not lag_ms or segment.largest_timestamp <= now_ms - lag_ms
            return is_clean or (self.next_offset_of(segment) <= safe_offset and is_old)

        ready = list(takewhile(is_ready, self.segments[:-1]))
        return self.next_offset_of(ready[-1]) if ready else 0

    def compact(self, end_offset: int, now_ms: int, found: Iterable[tuple[int, bytes]]) -> None:
        """A pass that knows all keys below `end_offset`; `found`: base offset and bytes of each
        segment after it.
        """
        before = [r for s in self.segments for b in s.batches for r in b.records]
        newest = {r.key: r.offset for r in before if r.offset < end_offset}
        kept = [
            r
            for r in before
            if r.offset >= end_offset
            or r.key is None
            or (newest[r.key] == r.offset and not self._is_due(r, now_ms))
        ]
        for record in kept:
            if record.offset < end_offset and record.key is not None and record.value is None:
                due_ms = now_ms + self.config.delete_retention_ms
                self.delete_horizons.setdefault(record.offset, due_ms)
        segments = [Segment(base, self._created_ms(base), batches_of(data)) for base, data in found]
        assert [r for s in segments for b in s.batches for r in b.records] == kept
        untouched = [b.data for s in self.segments for b in s.batches]
        for segment in segments:
            for batch in segment.batches:
                if batch.header.base_offset >= end_offset:
                    assert batch.data in untouched
        self.segments = segments
        self.first_dirty = end_offset

    def _is_due(self, record: Record, now_ms: int) -> bool:
        horizon = self.delete_horizons.get(record.offset)
        return record.value is None and horizon is not None and horizon <= now_ms

    def _created_ms(self, base_offset: int) -> int:
        (found,) = (s.created_ms for s in self.segments if s.base_offset == base_offset)
        return found
