"""The side of a log that is read. Its one rule: nothing here changes the log.

Source: R-LOG3, R-LOG11.
"""

from pathlib import Path

from storage_engine.core.errors import CorruptRecordError, OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.replication.leader_epochs import EpochEnd, LeaderEpochCache
from storage_engine.log.cleaning.segment_scrub import BadRange
from storage_engine.log.files.storage_errors import storage_error, storage_errors
from storage_engine.log.segments.log_reader import LogReader
from storage_engine.log.segments.segment_list import SegmentList
from storage_engine.log.segments.segment_slice import SegmentSlice
from storage_engine.log.segments.time_search import Search, TimeSearch, TimestampedOffset, run


class ReadableLog:
    """Invariant: log_start_offset <= log_end_offset."""

    __slots__ = (
        "_reader",
        "_segments",
        "damaged",
        "directory",
        "leader_epochs",
        "log_start_offset",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        segments: SegmentList,
        leader_epochs: LeaderEpochCache,
        *,
        log_start_offset: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.directory: Path = segments.folder.path
        self._segments = segments
        self._reader = LogReader()
        self.leader_epochs = leader_epochs
        """To look at; a new leader and appends change it."""
        self.log_start_offset = log_start_offset
        self.damaged: tuple[BadRange, ...] = ()
        """Bytes that are known to be bad, and refused to readers until they are repaired."""

    @property
    def log_end_offset(self) -> int:
        """Exclusive."""
        return self._segments.active.next_offset

    @property
    def ends_with_a_batch(self) -> bool:
        """Whether a batch ends where the log does. Else no batch came since the last segment was
        begun, and compaction may have taken the one before."""
        return self._segments.active.size > 0

    def skip_empty_segments(self, offset: int) -> int:
        """Where the segment begins with the next batch, if the one with `offset` has none."""
        segments = self._segments.all
        number = self._segments.number_of(offset)
        while not segments[number].size and number + 1 < len(segments):
            number += 1
        return max(offset, segments[number].base_offset)

    @property
    def latest_epoch(self) -> int:
        """Epoch of the newest leader known to this log; -1 when there is none."""
        return self.leader_epochs.latest_epoch

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """See `LeaderEpochCache.end_offset_for`."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # -- read --------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        max_offset: int | None = None,
        at_least_one: bool = True,
        wait: bool = True,
    ) -> SegmentSlice | None:
        """Whole batches from the one with `offset` on, below `max_offset` (exclusive; None: the
        log's end).

        None when nothing is there yet. The first batch is returned even if it is larger than
        `max_bytes`, unless `at_least_one` is off. OffsetOutOfRangeError names the valid range;
        CorruptRecordError when the bytes there are known to be bad. ColdBytesError when finding
        them would have to wait for the medium, unless `wait`.
        """
        self._segments.check_whole()
        end = self.log_end_offset
        if offset < self.log_start_offset or offset > end:
            raise self.out_of_range(offset)
        limit = end if max_offset is None or max_offset > end else max_offset
        if self.damaged:
            limit = self._sound_until(offset, limit)
        if offset >= limit:
            return None
        segments = self._segments
        try:
            return self._reader.read(
                segments.all,
                segments.number_of(offset),
                offset,
                max_bytes=max_bytes,
                limit=limit,
                at_least_one=at_least_one,
                wait=wait,
            )
        except OSError as error:
            raise storage_error("read", self.directory, error) from error

    def offset_for_timestamp(
        self, timestamp_ms: int, max_offset: int | None = None
    ) -> TimestampedOffset | None:
        """The first record at or after that time, below `max_offset`."""
        return run(self.search_timestamp(timestamp_ms, max_offset))

    def search_timestamp(self, timestamp_ms: int, max_offset: int | None = None) -> Search:
        """As `offset_for_timestamp`, in steps."""
        with storage_errors("read", self.directory):
            return (
                yield from TimeSearch(lambda: self._segments.all).by_timestamp(
                    timestamp_ms, self.log_start_offset, self._limit(max_offset)
                )
            )

    def offset_of_largest_timestamp(
        self, max_offset: int | None = None
    ) -> TimestampedOffset | None:
        """The first of the latest records below `max_offset`."""
        return run(self.search_largest_timestamp(max_offset))

    def search_largest_timestamp(self, max_offset: int | None = None) -> Search:
        """As `offset_of_largest_timestamp`, in steps."""
        with storage_errors("read", self.directory):
            return (
                yield from TimeSearch(lambda: self._segments.all).of_largest_timestamp(
                    self.log_start_offset, self._limit(max_offset)
                )
            )

    def _sound_until(self, offset: int, limit: int) -> int:
        """The offset before `limit` up to which nothing is known to be bad."""
        for bad in self.damaged:
            if bad.start_offset <= offset < bad.end_offset:
                raise CorruptRecordError(
                    f"offsets {bad.start_offset} to {bad.end_offset - 1} of {self.topic_partition}"
                    " are damaged on this broker"
                )
            if offset < bad.start_offset < limit:
                limit = bad.start_offset
        return limit

    def _limit(self, max_offset: int | None) -> int:
        return self.log_end_offset if max_offset is None else min(max_offset, self.log_end_offset)

    def out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        """The error for an offset that this log does not have."""
        return OffsetOutOfRangeError(
            f"offset {offset} of {self.topic_partition} is outside the log, which has"
            f" [{self.log_start_offset}, {self.log_end_offset})",
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )
