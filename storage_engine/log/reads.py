"""Reads of a log. Nothing here changes the log.

Source: R-LOG3, R-LOG11, KIP-98.
"""

from collections.abc import Callable

from storage_engine.core.errors import CorruptRecordError, KafkaError
from storage_engine.core.replication.leader_epochs import EpochEnd
from storage_engine.core.retained.producer_table import AbortedTransaction
from storage_engine.log.files.disk import storage_error, storage_errors
from storage_engine.log.files.segment_files import ColdBytesError
from storage_engine.log.log_config import MAX_SEGMENT_BYTES
from storage_engine.log.log_state import LogState
from storage_engine.log.segments.projected_slice import (
    BATCHES_MAX,
    ProjectedSlice,
    project_slice,
)
from storage_engine.log.segments.segment_slice import SegmentSlice, find_slice
from storage_engine.log.segments.time_search import Search, TimeSearch
from storage_engine.log.state.producer_replay import find_aborted
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.protocol.typed.projection import TypedWant


class LogReads:
    """Reads batches, offsets of times and of leader epochs, and aborted transactions."""

    __slots__ = ("_is_shared", "_log", "shared")

    def __init__(self, log: LogState) -> None:
        self._log = log
        self._is_shared = False
        self.shared: tuple[tuple[int, int, int, bool], SegmentSlice] | None = None
        """The last read, by its offset, end, most bytes, and whether one batch is returned in any
        case."""

    def share(self, readers: Callable[[], None]) -> None:
        """Call `readers`, in which several followers may read the same batches: they get one
        slice, whose bytes are read once. It is kept no longer than this call."""
        self._is_shared = True
        try:
            readers()
        finally:
            self._is_shared = False
            self.shared = None

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        max_offset: int | None = None,
        at_least_one: bool = True,
        wait: bool = True,
    ) -> SegmentSlice | None:
        """Return whole batches from the one with `offset` on, below `max_offset` (exclusive; None:
        the log's end).

        None when nothing is there yet. The first batch is returned even if it is larger than
        `max_bytes`, unless `at_least_one` is off. OffsetOutOfRangeError names the valid range;
        CorruptRecordError when the bytes there are known to be bad. ColdBytesError when finding
        them would have to wait for the medium, unless `wait`.
        """
        log = self._log
        segments = log.segments
        if segments.is_cut_short:
            segments.check_whole()
        end = segments.active.next_offset
        if offset < log.log_start_offset or offset > end:
            raise log.out_of_range(offset)
        limit = end if max_offset is None or max_offset > end else max_offset
        if log.damaged:
            limit = self._sound_until(offset, limit)
        if offset >= limit:
            return None
        key = offset, limit, max_bytes, at_least_one
        number = segments.number_of(offset)
        if (
            self.shared is not None
            and self.shared[0] == key
            and self.shared[1].is_current_in(segments.all[number])
        ):
            return self.shared[1]
        try:
            found = find_slice(
                log.read_positions,
                segments.all,
                number,
                offset,
                max_bytes=max_bytes,
                limit=limit,
                at_least_one=at_least_one,
                wait=wait,
            )
        except OSError as error:
            raise storage_error("read", log.directory, error) from error
        if self._is_shared and found is not None:
            self.shared = key, found
        return found

    def time_of(self, offset: int) -> int | None:
        """Return the wall time in ms of the first record of the batch with `offset`, as its
        producer says; that of the time index where the batch is not in memory. None where nothing
        tells it."""
        try:
            found = self.read(offset, max_bytes=1, wait=False)
            if found is None:
                return None
            if found.is_warm():
                return _time_or_none(read_header(found.view()).base_timestamp)
        except ColdBytesError:
            pass
        except KafkaError:
            return None
        segments = self._log.segments
        try:
            indexed = segments.all[segments.number_of(offset)].time_index.time_at(offset)
        except OSError:
            return None
        return _time_or_none(indexed)

    def read_projected(
        self,
        offset: int,
        want: TypedWant,
        *,
        max_bytes: int,
        max_offset: int | None = None,
        at_least_one: bool = True,
        batches_max: int = BATCHES_MAX,
        wait: bool = True,
    ) -> ProjectedSlice | None:
        """Read as `read` does, but frames with what `want` names. They are made of at most
        `batches_max` batches, and `max_bytes` counts what is sent."""
        log = self._log
        stored = self.read(
            offset, max_bytes=MAX_SEGMENT_BYTES, max_offset=max_offset, at_least_one=True, wait=wait
        )
        if stored is None:
            return None
        schema = log.segments.folder.config.schema
        projected = project_slice(
            stored, want, schema, limit_bytes=max_bytes, batches_max=batches_max, wait=wait
        )
        if len(projected) > max_bytes and not at_least_one:
            return None
        stored.note_end(log.read_positions, projected.end_offset, projected.stored_bytes)
        return projected

    def search_timestamp(self, timestamp_ms: int, max_offset: int | None = None) -> Search:
        """Search for the first record at or after that time, below `max_offset`."""
        log = self._log
        with storage_errors("read", log.directory):
            return (
                yield from TimeSearch(lambda: log.segments.all).by_timestamp(
                    timestamp_ms, log.log_start_offset, self._limit(max_offset)
                )
            )

    def search_largest_timestamp(self, max_offset: int | None = None) -> Search:
        """Search for the first of the records with the largest timestamp below `max_offset`."""
        log = self._log
        with storage_errors("read", log.directory):
            return (
                yield from TimeSearch(lambda: log.segments.all).of_largest_timestamp(
                    log.log_start_offset, self._limit(max_offset)
                )
            )

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with data in [start_offset, end_offset), which ends at
        the last stable offset at most."""
        log = self._log
        return find_aborted(log.snapshots, log.segments, start_offset, end_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """See `LeaderEpochCache.end_offset_for`."""
        log = self._log
        return log.leader_epochs.end_offset_for(epoch, log.log_end_offset)

    def skip_empty_segments(self, offset: int) -> int:
        """Return the base offset of the next segment that has a batch, if the one with `offset` has
        none; else `offset`."""
        segments = self._log.segments.all
        number = self._log.segments.number_of(offset)
        while not segments[number].size and number + 1 < len(segments):
            number += 1
        return max(offset, segments[number].base_offset)

    def _sound_until(self, offset: int, limit: int) -> int:
        """Return the offset before `limit` up to which nothing is known to be bad."""
        log = self._log
        for bad in log.damaged:
            if bad.start_offset <= offset < bad.end_offset:
                raise CorruptRecordError(
                    f"offsets {bad.start_offset} to {bad.end_offset - 1} of {log.topic_partition}"
                    " are damaged on this broker"
                )
            if offset < bad.start_offset < limit:
                limit = bad.start_offset
        return limit

    def _limit(self, max_offset: int | None) -> int:
        end_offset = self._log.log_end_offset
        return end_offset if max_offset is None else min(max_offset, end_offset)


def _time_or_none(timestamp_ms: int | None) -> int | None:
    return None if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms
