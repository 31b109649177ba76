"""Appends of a follower: its leader's batches, at the leader's offsets.

Offsets may be missing between batches, since the leader's log may have been compacted. Source:
R-LOG1, R-REP2, R-REP8.
"""

from collections.abc import Iterator

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.retained.producer_state import ANY_FORGOTTEN
from storage_engine.log.append_rules import AppendResult
from storage_engine.log.files.disk import storage_errors
from storage_engine.log.log_state import LogState
from storage_engine.log.segments.indexes import MAX_RELATIVE_OFFSET, PlacedBatch
from storage_engine.log.state.producer_replay import record_run
from storage_engine.log.truncation import Truncation
from storage_engine.protocol.records.batch_columns import MAX_OFFSET, StoredRun, stored_run
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import (
    LENGTH_END,
    MAGIC,
    BatchHeader,
    crc_matches,
    iter_headers,
)

RUN_BATCHES = 4
"""Fewer batches take less time one by one."""


class FollowerAppends:
    """Appends of followers, and those of a log to its copy in another log dir."""

    __slots__ = ("_log", "_truncation")

    def __init__(self, log: LogState, truncation: Truncation) -> None:
        self._log = log
        self._truncation = truncation

    def append(self, records: memoryview) -> AppendResult:
        """Stores a leader's batches; a batch that is cut off at the end is left out.

        CorruptRecordError when they are damaged or do not continue where the log ends.
        """
        log = self._log
        segments = log.segments
        segments.check_whole()
        end_offset = log.log_end_offset
        run = self._run(records, end_offset)
        if run is not None:
            return self._store_run(records, run)
        is_empty = self._is_empty
        batches = _follower_batches(records, end_offset, empty=is_empty)
        if not batches:
            return AppendResult(end_offset, end_offset - 1, end_offset, -1, False, 0)
        log.room.take(len(records))
        base_offset = batches[0][1].base_offset
        if is_empty and base_offset < segments.active.base_offset:
            self._truncation.start_anew_at(base_offset)
        log.epoch_checkpoint.note_batches(batches)
        if _has_gaps(batches, log.log_end_offset):
            log.producer_state.forgotten_to = ANY_FORGOTTEN
            log.cleaning.expect_gaps_durably("keep that offsets are missing in")
            if batches[-1][1].last_offset - log.log_end_offset > MAX_RELATIVE_OFFSET:
                # The next segment can't begin where this one ends: see `log_loader.Gaps`.
                log.flush_state.flush()
        now_ms = log.clock.wall_ms()
        size = 0
        for begin, end, placed in _runs_of(batches, log.append_rules.roll_rule.segment_bytes):
            log.write_batches(records[begin:end], placed, now_ms, False)
            size += end - begin
        end_offset = log.log_end_offset
        return AppendResult(base_offset, end_offset - 1, end_offset, -1, False, size)

    def _run(self, records: memoryview, end_offset: int) -> StoredRun | None:
        """Return the batches if all are good and go to the active segment as they are, like nearly
        all that a leader sends; None: each has to be checked."""
        log = self._log
        segment = log.segments.active
        if log.is_closed or not _are_several(records):
            return None
        run = stored_run(records, end_offset)
        if run is None or (
            not segment.size and run.size > log.append_rules.roll_rule.segment_bytes
        ):
            return None
        max_timestamps = run.columns.max_timestamps
        try:
            # Batches without a time make a segment roll by another rule.
            must_roll = min(max_timestamps) < 0 or log.append_rules.roll_rule.demands_roll(
                segment, run.size, run.offsets[-1] - 1, max(max_timestamps), log.clock.wall_ms()
            )
        except OSError:
            # The append of them one by one gets the error again, and reports it.
            return None
        return None if must_roll else run

    def _store_run(self, records: memoryview, run: StoredRun) -> AppendResult:
        log = self._log
        log.room.take(len(records))
        log.epoch_checkpoint.note_batch(run.leader_epoch, run.offsets[0])
        now_ms = log.clock.wall_ms()
        segment = log.segments.active
        segment.write(records[: run.size])
        segment.wrote_ms = now_ms
        segment.note_run(run.columns.sizes, run.offsets, run.columns.max_timestamps)
        record_run(log.producer_state, run.columns, run.offsets, now_ms, run.transactional)
        base_offset, end_offset = run.offsets[0], run.offsets[-1]
        return AppendResult(base_offset, end_offset - 1, end_offset, -1, False, run.size)

    def end_at(self, offset: int) -> None:
        """Moves the log's end up to `offset`: the offsets between are missing, as they are in
        another log that was compacted and then truncated."""
        log = self._log
        log.segments.check_whole()
        log.cleaning.expect_gaps_durably("keep that offsets are missing in")
        # Recovery takes a gap that is not flushed for the damage of a crash.
        log.flush_state.flush()
        if self._is_empty:
            self._truncation.start_anew_at(offset)
        else:
            with storage_errors("roll", log.directory, unchanged=True):
                log.roll(offset)

    @property
    def _is_empty(self) -> bool:
        segments = self._log.segments
        return segments.active.size == 0 and len(segments) == 1


def _are_several(records: memoryview) -> bool:
    """Whether there are about RUN_BATCHES or more, judged by the first."""
    first_bytes = LENGTH_END + int.from_bytes(records[LENGTH_END - 4 : LENGTH_END], "big")
    return first_bytes * RUN_BATCHES <= len(records)


def _has_gaps(batches: list[tuple[int, BatchHeader]], next_offset: int) -> bool:
    """Return True when offsets are missing from `next_offset` to the end of the batches: their
    leader's log was compacted.
    """
    if len(batches) == 1:
        return batches[0][1].base_offset > next_offset
    count = sum(header.last_offset_delta + 1 for _, header in batches)
    return batches[-1][1].next_offset - next_offset > count


def _follower_batches(
    records: memoryview, next_offset: int, *, empty: bool
) -> list[tuple[int, BatchHeader]]:
    """Check the batches of a leader's fetch response and return the whole ones; a batch cut off at
    the end is left out.

    Offsets must go on at `next_offset` or later (compaction leaves gaps). The first batch of an
    empty log may begin before it: the log's start can lie within a batch.
    """
    batches: list[tuple[int, BatchHeader]] = []
    for position, header in iter_headers(records):
        if header.magic != MAGIC or header.last_offset_delta < 0:
            raise CorruptRecordError(
                f"the leader sent a batch of magic {header.magic} with last offset delta"
                f" {header.last_offset_delta} for offset {header.base_offset}"
            )
        if header.next_offset > MAX_OFFSET:
            raise CorruptRecordError(
                f"the leader sent offset {header.base_offset}, after which no other fits"
            )
        if header.base_offset < next_offset and not (
            empty and not batches and next_offset <= header.last_offset
        ):
            raise CorruptRecordError(
                f"the leader sent offset {header.base_offset},"
                f" the log already ends at {next_offset}"
            )
        if not crc_matches(records, position, header.size_in_bytes):
            raise CorruptRecordError(
                f"the CRC of the batch at offset {header.base_offset} from the leader"
                " does not match"
            )
        if header.is_control:
            read_marker(records[position : position + header.size_in_bytes])
        next_offset = header.next_offset
        batches.append((position, header))
    return batches


def _runs_of(
    batches: list[tuple[int, BatchHeader]], max_bytes: int
) -> Iterator[tuple[int, int, list[PlacedBatch]]]:
    """Yields contiguous batches in runs that fit a segment: byte range, then (base offset, header).

    A run has at most `max_bytes` or is one batch, and its offsets are within an int32 of each
    other.
    """
    begin = batches[0][0]
    placed: list[PlacedBatch] = []
    for position, header in batches:
        if placed and (
            position + header.size_in_bytes - begin > max_bytes
            or header.last_offset - placed[0][0] > MAX_RELATIVE_OFFSET
        ):
            yield begin, position, placed
            begin, placed = position, []
        placed.append((header.base_offset, header))
    position, header = batches[-1]
    yield begin, position + header.size_in_bytes, placed
