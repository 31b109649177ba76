"""What a partition's leader appends. Its one rule: an append is stored whole, or the log is as it
was and the producer gets to know why.

Checks come first, then a place in the log, then the write. Of each batch only the header is looked
at. Source: R-LOG1, R-LOG12, R-REP8, KIP-98.
"""

from collections.abc import Sequence

from storage_engine.core.errors import KafkaError, RecordListTooLargeError
from storage_engine.core.transactions.partition_transactions import TransactionMarker
from storage_engine.log.appending.append_check import check_producers
from storage_engine.log.appending.append_result import AppendResult
from storage_engine.log.appending.append_run import AppendRun
from storage_engine.log.appending.column_append import producers_allow, record_producers
from storage_engine.log.appending.log_tail import LogTail
from storage_engine.log.files.free_space import FreeSpace
from storage_engine.log.segments.placing import place
from storage_engine.protocol.records.batch_columns import BatchColumns
from storage_engine.protocol.records.control_record import encode_marker
from storage_engine.protocol.records.record_batch import (
    BatchHeader,
    read_header,
    validate_for_append,
)
from storage_engine.protocol.records.record_keys import check_keys


class LeaderAppends:
    """The ways in: a producer's request, several of them, their batches as columns, the end of a
    transaction."""

    __slots__ = ("_room", "_tail")

    def __init__(self, tail: LogTail, room: FreeSpace) -> None:
        self._tail = tail
        self._room = room

    def append(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        allow_transactional: bool,
        keys_checked: bool = False,
    ) -> AppendResult:
        """See `PartitionLog.append_as_leader`."""
        tail = self._tail
        batches = self._checked(records, allow_transactional, now_ms)
        first_time = check_producers(tail.producers, batches)
        if first_time is not None:
            return self._duplicate(*first_time)
        if tail.compacts and not keys_checked:
            check_keys(records, batches)
        if records.readonly:
            records = memoryview(bytearray(records))
        return self._store(records, batches, leader_epoch, now_ms)

    def append_run(
        self,
        appends: Sequence[memoryview],
        *,
        leader_epoch: int,
        now_ms: int,
        allow_transactional: bool,
        keys_checked: bool = False,
    ) -> list[AppendResult | KafkaError]:
        """See `PartitionLog.append_run_as_leader`."""
        if len(appends) == 1:
            return [
                self._outcome(appends[0], leader_epoch, now_ms, allow_transactional, keys_checked)
            ]
        tail = self._tail
        run = AppendRun(tail.end_offset, now_ms if tail.stamps_append_time else -1)
        for records in appends:
            try:
                batches = self._checked(records, allow_transactional, now_ms)
                if not run.goes_on_with(batches):
                    # The producers' state must know what came before.
                    self._write_run(run, now_ms)
                    first_time = check_producers(tail.producers, batches)
                    if first_time is not None:
                        run.outcomes.append(self._duplicate(*first_time))
                        continue
                if tail.compacts and not keys_checked:
                    check_keys(records, batches)
                if records.readonly:
                    records = memoryview(bytearray(records))
                self._take(run, records, batches, leader_epoch, now_ms)
            except KafkaError as failure:
                run.outcomes.append(failure.as_outcome())
        self._write_run(run, now_ms)
        return run.outcomes

    def append_columns(
        self, columns: BatchColumns, *, leader_epoch: int, now_ms: int
    ) -> list[int] | None:
        """See `PartitionLog.append_columns_as_leader`."""
        tail = self._tail
        segment = tail.segments.active
        if (
            tail.closed
            or tail.segments.is_cut_short
            or (tail.requirement is not None and not tail.requirement.is_met_by_columns(columns))
            or tail.stamps_append_time
            or leader_epoch != tail.epochs.cache.latest_epoch
            or not segment.size
            or len(columns) >= segment.index_room
            or max(columns.sizes) > tail.roll_rule.segment_bytes
            # Batches without a time make a segment roll by another rule.
            or min(columns.max_timestamps) < 0
            # Which of the batches is refused, and why, is said one by one.
            or not tail.time_limits.allow_newest(max(columns.max_timestamps), now_ms)
            or tail.time_limits.has_oldest
        ):
            return None
        offsets = columns.offsets_from(tail.end_offset)
        size = sum(columns.sizes)
        try:
            must_roll = tail.roll_rule.demands_roll(
                segment, size, offsets[-1] - 1, max(columns.max_timestamps), now_ms
            )
        except OSError:
            # Whoever appends them one by one meets the error again, and reports it.
            return None
        if (
            must_roll
            or not columns.are_plain(max_message_bytes=tail.max_message_bytes)
            or not producers_allow(tail.producers, columns)
            or not self._room.has(size)
        ):
            return None
        self._room.take(size)
        segment.write(columns.placed(offsets, leader_epoch))
        segment.wrote_ms = now_ms
        segment.note_run(columns.sizes, offsets, columns.max_timestamps)
        record_producers(tail.producers, columns, offsets, now_ms)
        return offsets

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: TransactionMarker,
        *,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult:
        """See `PartitionLog.append_marker`."""
        self._tail.producers.check_marker(
            producer_id,
            producer_epoch,
            marker.coordinator_epoch,
            has_own_epoch=marker.has_own_epoch,
        )
        records = encode_marker(producer_id, producer_epoch, marker, timestamp_ms=now_ms)
        return self._store(records, [(0, read_header(records))], leader_epoch, now_ms)

    def _outcome(
        self,
        records: memoryview,
        leader_epoch: int,
        now_ms: int,
        allow_transactional: bool,
        keys_checked: bool,
    ) -> AppendResult | KafkaError:
        try:
            return self.append(
                records,
                leader_epoch=leader_epoch,
                now_ms=now_ms,
                allow_transactional=allow_transactional,
                keys_checked=keys_checked,
            )
        except KafkaError as failure:
            return failure.as_outcome()

    def _checked(
        self, records: memoryview, allow_transactional: bool, now_ms: int
    ) -> list[tuple[int, BatchHeader]]:
        """The batches of one append, after the checks that need no look at the log."""
        tail = self._tail
        batches = validate_for_append(
            records,
            max_message_bytes=tail.max_message_bytes,
            allow_transactional=allow_transactional,
        )
        if tail.time_limits.are_set and not tail.stamps_append_time:
            for _, header in batches:
                tail.time_limits.check(header, now_ms)
        segment_bytes = tail.roll_rule.segment_bytes
        if len(records) > segment_bytes:
            raise _too_large(len(records), segment_bytes)
        return batches

    def _store(
        self,
        records: memoryview,
        batches: list[tuple[int, BatchHeader]],
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult:
        """Gives one append that has passed all checks its place, and writes it."""
        tail = self._tail
        size = len(records)
        self._room.take(size)
        if leader_epoch != tail.epochs.cache.latest_epoch:
            tail.start_epoch(leader_epoch)
        stamped = tail.stamps_append_time
        base_offset = tail.end_offset
        placed = place(records, batches, base_offset, leader_epoch, now_ms if stamped else None)
        tail.write(records, placed, now_ms, stamped)
        end_offset = tail.end_offset
        return AppendResult(
            base_offset, end_offset - 1, end_offset, now_ms if stamped else -1, False, size
        )

    def _take(
        self,
        run: AppendRun,
        records: memoryview,
        batches: list[tuple[int, BatchHeader]],
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Gives batches that have passed all checks their place behind those of the run."""
        self._room.take(len(records))
        if not run.parts and leader_epoch != self._tail.epochs.cache.latest_epoch:
            self._tail.start_epoch(leader_epoch)
        stamp_ms = now_ms if self._tail.stamps_append_time else None
        run.add(records, place(records, batches, run.end_offset, leader_epoch, stamp_ms))

    def _duplicate(self, base_offset: int, last_offset: int, timestamp_ms: int) -> AppendResult:
        if not self._tail.stamps_append_time:
            timestamp_ms = -1
        return AppendResult(base_offset, last_offset, self._tail.end_offset, timestamp_ms, True, 0)

    def _write_run(self, run: AppendRun, now_ms: int) -> None:
        """Stores what the run has; what can't be stored has failed, and is as if it never came."""
        if not run.parts:
            return
        stamped = self._tail.stamps_append_time
        try:
            whole = len(run.parts) == 1 or (
                run.is_worth_joining and self._fits_active_segment(run, now_ms, stamped)
            )
        except (KafkaError, OSError):
            # The first batch of the segment can't be read: the writes meet it again.
            whole = False
        for data, placed in [run.joined()] if whole else run.parts:
            try:
                self._tail.write(data, placed, now_ms, stamped)
            except KafkaError as failure:
                run.fail_from(placed[0][0], failure)
                break
        run.begin_anew(self._tail.end_offset)

    def _fits_active_segment(self, run: AppendRun, now_ms: int, stamped: bool) -> bool:
        """Whether the run's appends, one by one, would all go to the active segment."""
        segment = self._tail.segments.active
        if not segment.size or len(run.placed) >= segment.index_room:
            return False
        times = [now_ms] if stamped else [header.max_timestamp for _, header in run.placed]
        # Batches without a time make a segment roll by another rule.
        return min(times) >= 0 and not self._tail.roll_rule.demands_roll(
            segment, run.size, run.end_offset - 1, max(times), now_ms
        )


def _too_large(size: int, segment_bytes: int) -> RecordListTooLargeError:
    return RecordListTooLargeError(
        f"{size} bytes for one partition are more than segment.bytes ="
        f" {segment_bytes}: send less at a time"
    )
