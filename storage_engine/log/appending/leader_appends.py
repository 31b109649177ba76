"""What a partition's leader appends. Its one rule: an append is stored whole, or the log is as it
was and the producer gets to know why.

Checks come first, then a place in the log, then the write. Of each batch only the header is looked
at. Source: R-LOG1, R-LOG12, R-REP8, KIP-98.
"""

from storage_engine.core.errors import RecordListTooLargeError
from storage_engine.core.transactions.partition_transactions import TransactionMarker
from storage_engine.log.appending.append_check import check_producers
from storage_engine.log.appending.append_result import AppendResult
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
    """The ways in: a producer's batches, many producers' batches as columns, the end of a
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

    def _duplicate(self, base_offset: int, last_offset: int, timestamp_ms: int) -> AppendResult:
        if not self._tail.stamps_append_time:
            timestamp_ms = -1
        return AppendResult(base_offset, last_offset, self._tail.end_offset, timestamp_ms, True, 0)


def _too_large(size: int, segment_bytes: int) -> RecordListTooLargeError:
    return RecordListTooLargeError(
        f"{size} bytes for one partition are more than segment.bytes ="
        f" {segment_bytes}: send less at a time"
    )
