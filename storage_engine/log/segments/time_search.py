"""Finds the offset for a timestamp: that of the first record, in offset order, that is late enough.

A search may take long: it reads headers where the time index leaves a gap, and decodes batches,
which may be compressed. So it is a generator, which yields None where it may be interrupted, and a
function where a thread can do the work, whose result it then expects. A search that is interrupted
ends with a KafkaError when the log has changed meanwhile.

Source: KIP-79; R-LOG11.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.protocol.records.record_batch import BatchHeader
from storage_engine.protocol.typed.typed_batch import is_typed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from storage_engine.protocol.records.varints import Ints

Found = TypeVar("Found")

DECOMPRESSED_MAX_BYTES = 64 << 20
"""The limit of decompressed bytes: a larger batch is treated as a whole, since a small batch must
not fill a broker's memory.
"""

HEADERS_PER_STEP = 100
"""The headers that are read between two yields, which takes a tenth of a millisecond."""

logger = logging.getLogger(__name__)


class TimestampedOffset(NamedTuple):
    """A record's offset, its timestamp, and the epoch of the leader that wrote it."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


Searching = Generator[Callable[[], "RecordTimes"] | None, "RecordTimes", Found]
"""Yields None or a function, and is sent the function's result."""

Search = Searching[TimestampedOffset | None]


class TimeSearch:
    """Searches in one log, which may change while a search is interrupted."""

    def __init__(self, segments: Callable[[], Sequence[LogSegment]]) -> None:
        """`segments` returns the log's present segments, base offsets ascending."""
        self._segments = segments

    def by_timestamp(
        self,
        timestamp_ms: int,
        start_offset: int,
        end_offset: int,
        among: Sequence[LogSegment] | None = None,
    ) -> Search:
        """Search for the first record of [start_offset, end_offset) that is not earlier than
        `timestamp_ms`."""
        if start_offset >= end_offset:
            return None
        for segment in list(self._segments()) if among is None else among:
            yield None
            self._check(segment)
            if segment.next_offset <= start_offset or segment.size == 0:
                continue
            if segment.base_offset >= end_offset:
                break
            if segment.largest_timestamp() < timestamp_ms:
                continue
            for entry in self._scan(segment, _start(segment, timestamp_ms)):
                if entry is None:
                    yield None
                    continue
                position, header = entry
                if header.base_offset >= end_offset:
                    return None
                if (
                    header.max_timestamp >= timestamp_ms
                    and header.last_offset >= start_offset
                    and header.records_count
                ):
                    found = yield from self._within_batch(
                        segment, position, header, timestamp_ms, start_offset, end_offset
                    )
                    if found is not None:
                        return found
        return None

    def of_largest_timestamp(self, start_offset: int, end_offset: int) -> Search:
        """Search for the first of the latest records in [start_offset, end_offset)."""
        if start_offset >= end_offset:
            return None
        inside = [
            segment
            for segment in self._segments()
            if segment.size
            and segment.next_offset > start_offset
            and segment.base_offset < end_offset
        ]
        largest, first = yield from self._largest_time(inside, start_offset, end_offset)
        found = None
        if largest >= 0:
            found = yield from self.by_timestamp(largest, start_offset, end_offset, inside)
        if first is not None and (found is None or first.timestamp_ms >= found.timestamp_ms):
            return first
        if found is not None or largest < 0:
            return found
        # The latest batch is one that compaction has emptied.
        largest = yield from self._largest_time_filled(inside, start_offset, end_offset)
        if largest < 0:
            return None
        return (yield from self.by_timestamp(largest, start_offset, end_offset, inside))

    def _largest_time(
        self, inside: Sequence[LogSegment], start_offset: int, end_offset: int
    ) -> Searching[tuple[int, TimestampedOffset | None]]:
        """Find the largest timestamp of whole batches in the range; and, of a batch that begins
        before it, the first of the latest records."""
        largest = -1
        first: TimestampedOffset | None = None
        for segment in inside:
            yield None
            self._check(segment)
            if start_offset <= segment.base_offset and segment.next_offset <= end_offset:
                largest = max(largest, segment.largest_timestamp())
                continue
            for entry in self._scan(segment):
                if entry is None:
                    yield None
                    continue
                position, header = entry
                if header.base_offset >= start_offset and header.next_offset <= end_offset:
                    largest = max(largest, header.max_timestamp)
                elif header.base_offset < start_offset <= header.last_offset:
                    # Its latest record may be one of those below the start.
                    first = yield from self._largest_within_batch(
                        segment, position, header, start_offset, end_offset
                    )
        return largest, first

    def _largest_time_filled(
        self, inside: Sequence[LogSegment], start_offset: int, end_offset: int
    ) -> Searching[int]:
        """Find the largest timestamp of whole batches in the range that have records; -1 when there
        is none."""
        largest = -1
        for segment in inside:
            yield None
            self._check(segment)
            for entry in self._scan(segment):
                if entry is None:
                    yield None
                    continue
                header = entry[1]
                is_inside = header.last_offset >= start_offset and header.next_offset <= end_offset
                if header.records_count and is_inside:
                    largest = max(largest, header.max_timestamp)
        return largest

    def _scan(
        self, segment: LogSegment, position: int = 0
    ) -> Iterator[tuple[int, BatchHeader] | None]:
        """Yield what `LogSegment.scan` does, and None where the search may be interrupted."""
        for number, entry in enumerate(segment.scan(position), start=1):
            yield entry
            if number % HEADERS_PER_STEP == 0:
                yield None
                self._check(segment, entry[0] + entry[1].size_in_bytes)

    def _check(self, segment: LogSegment, end: int = 0) -> None:
        """Raise KafkaError when the segment, up to byte `end`, is no longer part of the log."""
        now = self._segments()
        # This is a binary search, since a log may have thousands of segments.
        number = bisect_left(now, segment.base_offset, key=attrgetter("base_offset"))
        if segment.size < end or number == len(now) or now[number] is not segment:
            raise KafkaError(
                f"the log has lost {segment.file.path.name} while it was searched: ask again",
                ErrorCode.REPLICA_NOT_AVAILABLE,
            )

    def _within_batch(
        self,
        segment: LogSegment,
        position: int,
        header: BatchHeader,
        timestamp_ms: int,
        start_offset: int,
        end_offset: int,
    ) -> Search:
        epoch = header.partition_leader_epoch
        if _all_have_one_time(header):
            offset = max(header.base_offset, start_offset)
            return TimestampedOffset(offset, header.max_timestamp, epoch)
        times = yield self._times(segment, position, header, start_offset, end_offset)
        self._check(segment, position)
        found = times.first_from(timestamp_ms)
        return None if found is None else TimestampedOffset(found[0], found[1], epoch)

    def _largest_within_batch(
        self,
        segment: LogSegment,
        position: int,
        header: BatchHeader,
        start_offset: int,
        end_offset: int,
    ) -> Search:
        epoch = header.partition_leader_epoch
        if not header.records_count:
            return None
        if _all_have_one_time(header):
            return TimestampedOffset(start_offset, header.max_timestamp, epoch)
        times = yield self._times(segment, position, header, start_offset, end_offset)
        self._check(segment, position)
        found = times.first_of_largest()
        if found is None or found[1] < 0:
            return None
        return TimestampedOffset(found[0], found[1], epoch)

    @staticmethod
    def _times(
        segment: LogSegment,
        position: int,
        header: BatchHeader,
        start_offset: int,
        end_offset: int,
    ) -> Callable[[], "RecordTimes"]:
        # This is a copy, not a view of the file, which may shrink while a thread reads.
        batch = segment.read_bytes(position, header.size_in_bytes)
        return partial(
            _times_within_batch, segment.file.path, header, batch, start_offset, end_offset
        )


def _start(segment: LogSegment, timestamp_ms: int) -> int:
    """Return the byte position where a search in the segment begins: nothing before it is as late
    as `timestamp_ms`."""
    entry = segment.time_index.floor(timestamp_ms)
    if entry is None:
        return 0
    position = segment.find_time(entry)
    if position is None:
        segment.repair_indexes()
        return 0
    return position


def _all_have_one_time(header: BatchHeader) -> bool:
    """Return True when the batch has a record at every offset, all with its largest timestamp."""
    is_stamped = header.timestamp_type == 1 and header.records_count > header.last_offset_delta
    return is_stamped or header.is_control


class RecordTimes:
    """The offset and timestamp of every record of a batch in a range of offsets, in their order."""

    def __init__(self, offsets: "Ints", timestamps_ms: "Ints") -> None:
        self._offsets = offsets
        self._timestamps_ms = timestamps_ms

    def first_from(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return the first record that is not earlier."""
        return self._first((self._timestamps_ms >= timestamp_ms).nonzero()[0])

    def first_of_largest(self) -> tuple[int, int] | None:
        times = self._timestamps_ms
        return self._first((times == times.max()).nonzero()[0]) if len(times) else None

    def _first(self, places: "npt.NDArray[np.intp]") -> tuple[int, int] | None:
        if not len(places):
            return None
        place = places[0]
        return int(self._offsets[place]), int(self._timestamps_ms[place])


def _times_within_batch(
    path: Path, header: BatchHeader, batch: bytes, start_offset: int, end_offset: int
) -> RecordTimes:
    """Decode a batch; may run on any thread."""
    # The imports are here: they load Arrow, which a broker without such searches saves.
    import numpy as np

    from storage_engine.protocol.records.record_decoder import decode_batches

    try:
        if is_typed(header):
            return _typed_times(header, batch, start_offset, end_offset)
        decoded = decode_batches(
            memoryview(batch),
            start_offset=start_offset,
            end_offset=end_offset,
            max_decompressed_bytes=DECOMPRESSED_MAX_BYTES,
        )
    except KafkaError as error:
        # A producer may have sent an invalid batch; not every search over it shall fail.
        logger.warning("batch not decoded segment=%s error=%s", path, error)
        offset = max(header.base_offset, start_offset)
        return RecordTimes(np.array([offset]), np.array([header.max_timestamp]))
    return RecordTimes(
        decoded.offsets.to_numpy(zero_copy_only=False),
        decoded.timestamps_ms.to_numpy(zero_copy_only=False),
    )


def _typed_times(
    header: BatchHeader, batch: bytes, start_offset: int, end_offset: int
) -> RecordTimes:
    from storage_engine.protocol.typed.stored_rows import row_times

    offsets, timestamps_ms = row_times(header, memoryview(batch), max_bytes=DECOMPRESSED_MAX_BYTES)
    inside = (offsets >= start_offset) & (offsets < end_offset)
    return RecordTimes(offsets[inside], timestamps_ms[inside])
