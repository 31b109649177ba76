"""What a partition's leader appends. An append is stored whole, or the log is as it was and the
producer gets an error that says why.

Checks come first, then a place in the log, then the write. Only the header of each batch is
examined. Source: R-LOG1, R-LOG12, R-REP8, KIP-98.
"""

from collections.abc import Sequence
from contextlib import suppress

from storage_engine.core.errors import CorruptRecordError, KafkaError, RecordListTooLargeError
from storage_engine.core.transactions.partition_transactions import TransactionMarker
from storage_engine.log.appending.append_check import check_producers
from storage_engine.log.appending.append_preparation import Requirement
from storage_engine.log.appending.append_result import AppendResult
from storage_engine.log.appending.append_run import AppendRun
from storage_engine.log.appending.column_append import producers_allow, record_producers
from storage_engine.log.batch_writes import write_batches
from storage_engine.log.log_state import LogState
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

    __slots__ = ("_log",)

    def __init__(self, log: LogState) -> None:
        self._log = log

    @property
    def requirement(self) -> Requirement | None:
        """What producers' batches must be before they are appended; None: anything sound."""
        return self._log.append_rules.requirement

    def append(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        allow_transactional: bool = True,
        keys_checked: bool = False,
    ) -> AppendResult:
        """Checks a producer's batches, gives them offsets (in `records` itself if it is writable),
        and stores them.

        `allow_transactional` False: none of them may belong to a transaction, since nobody would
        end it. Control batches are always refused: see `append_marker`. `keys_checked`: a
        preparation has seen that every record has a key, so that a compacted log need not look.
        Raises what the producer is to get; the log is unchanged then.
        """
        log = self._log
        batches = self._checked(records, allow_transactional, now_ms)
        first_time = check_producers(log.producer_state, batches)
        if first_time is not None:
            return self._duplicate(*first_time)
        if not keys_checked and log.append_rules.compacts:
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
        allow_transactional: bool = True,
        keys_checked: bool = False,
    ) -> list[AppendResult | KafkaError]:
        """As `append` of each, one after the other and each with its own outcome, in as few writes
        as possible.
        """
        if len(appends) == 1:
            return [
                self._outcome(appends[0], leader_epoch, now_ms, allow_transactional, keys_checked)
            ]
        log = self._log
        rules = log.append_rules
        run = AppendRun(log.log_end_offset, now_ms if rules.stamps_append_time else -1)
        for records in appends:
            try:
                batches = self._checked(records, allow_transactional, now_ms)
                if not run.goes_on_with(batches):
                    # The producers' state must know what came before.
                    self._write_run(run, now_ms)
                    first_time = check_producers(log.producer_state, batches)
                    if first_time is not None:
                        run.outcomes.append(self._duplicate(*first_time))
                        continue
                if rules.compacts and not keys_checked:
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
        """As `append_run` of these batches, each an append of its own and none in a transaction:
        their base offsets, then the offset that follows.

        None, and nothing is done, unless all of them are good and go to the active segment as they
        are. Raises what all of them are to get.
        """
        log = self._log
        rules = log.append_rules
        segment = log.segments.active
        if (
            log.is_closed
            or log.segments.is_cut_short
            or (rules.requirement is not None and not rules.requirement.is_met_by_columns(columns))
            or rules.stamps_append_time
            or leader_epoch != log.leader_epochs.latest_epoch
            or not segment.size
            or len(columns) >= segment.index_room
            or max(columns.sizes) > rules.roll_rule.segment_bytes
            # Batches without a time make a segment roll by another rule.
            or min(columns.max_timestamps) < 0
            # Which of the batches is refused, and why, is said one by one.
            or not rules.time_limits.allow_newest(max(columns.max_timestamps), now_ms)
            or rules.time_limits.has_oldest
        ):
            return None
        offsets = columns.offsets_from(segment.next_offset)
        size = sum(columns.sizes)
        try:
            must_roll = rules.roll_rule.demands_roll(
                segment, size, offsets[-1] - 1, max(columns.max_timestamps), now_ms
            )
        except OSError:
            # An append of them one by one gets the error again, and reports it.
            return None
        if (
            must_roll
            or not columns.are_plain(max_message_bytes=rules.max_message_bytes)
            or not producers_allow(log.producer_state, columns)
            or not log.room.has(size)
        ):
            return None
        log.room.take(size)
        segment.write(columns.placed(offsets, leader_epoch))
        segment.wrote_ms = now_ms
        segment.note_run(columns.sizes, offsets, columns.max_timestamps)
        record_producers(log.producer_state, columns, offsets, now_ms)
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
        """Ends the producer's transaction in this partition, as its coordinator says; a marker
        without data before it is harmless.

        InvalidProducerEpochError, TransactionCoordinatorFencedError: the log knows a newer producer
        or coordinator, and is unchanged.
        """
        self._log.producer_state.check_marker(
            producer_id,
            producer_epoch,
            marker.coordinator_epoch,
            has_own_epoch=marker.has_own_epoch,
        )
        records = encode_marker(producer_id, producer_epoch, marker, timestamp_ms=now_ms)
        return self._store(records, [(0, read_header(records))], leader_epoch, now_ms)

    def note_refused(self, records: memoryview) -> None:
        """The leader has refused these batches of a producer, who will send them again."""
        with suppress(CorruptRecordError):
            first = read_header(records)
            if first.producer_id >= 0:
                self._log.producer_state.note_refused(
                    first.producer_id, first.producer_epoch, first.base_sequence
                )

    def start_epoch(self, epoch: int) -> None:
        """A leader of this epoch will write from the log's end on. KafkaError when the log knows a
        newer one. Touches no file: the next flush does.
        """
        self._log.segments.check_whole()
        self._log.start_epoch(epoch)

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
        rules = self._log.append_rules
        batches = validate_for_append(
            records,
            max_message_bytes=rules.max_message_bytes,
            allow_transactional=allow_transactional,
        )
        if rules.time_limits.are_set and not rules.stamps_append_time:
            for _, header in batches:
                rules.time_limits.check(header, now_ms)
        segment_bytes = rules.roll_rule.segment_bytes
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
        log = self._log
        size = len(records)
        log.room.take(size)
        if leader_epoch != log.leader_epochs.latest_epoch:
            log.start_epoch(leader_epoch)
        stamped = log.append_rules.stamps_append_time
        base_offset = log.segments.active.next_offset
        placed = place(records, batches, base_offset, leader_epoch, now_ms if stamped else None)
        write_batches(log, records, placed, now_ms, stamped)
        end_offset = log.segments.active.next_offset
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
        log = self._log
        log.room.take(len(records))
        if not run.parts and leader_epoch != log.leader_epochs.latest_epoch:
            log.start_epoch(leader_epoch)
        stamp_ms = now_ms if log.append_rules.stamps_append_time else None
        run.add(records, place(records, batches, run.end_offset, leader_epoch, stamp_ms))

    def _duplicate(self, base_offset: int, last_offset: int, timestamp_ms: int) -> AppendResult:
        log = self._log
        if not log.append_rules.stamps_append_time:
            timestamp_ms = -1
        return AppendResult(base_offset, last_offset, log.log_end_offset, timestamp_ms, True, 0)

    def _write_run(self, run: AppendRun, now_ms: int) -> None:
        """Stores what the run has; what can't be stored has failed, and is as if it never came."""
        if not run.parts:
            return
        stamped = self._log.append_rules.stamps_append_time
        try:
            whole = len(run.parts) == 1 or (
                run.is_worth_joining and self._fits_active_segment(run, now_ms, stamped)
            )
        except (KafkaError, OSError):
            # The first batch of the segment can't be read: the writes get that error again.
            whole = False
        for data, placed in [run.joined()] if whole else run.parts:
            try:
                write_batches(self._log, data, placed, now_ms, stamped)
            except KafkaError as failure:
                run.fail_from(placed[0][0], failure)
                break
        run.begin_anew(self._log.log_end_offset)

    def _fits_active_segment(self, run: AppendRun, now_ms: int, stamped: bool) -> bool:
        """Whether the run's appends, one by one, would all go to the active segment."""
        segment = self._log.segments.active
        if not segment.size or len(run.placed) >= segment.index_room:
            return False
        times = [now_ms] if stamped else [header.max_timestamp for _, header in run.placed]
        # Batches without a time make a segment roll by another rule.
        return min(times) >= 0 and not self._log.append_rules.roll_rule.demands_roll(
            segment, run.size, run.end_offset - 1, max(times), now_ms
        )


def _too_large(size: int, segment_bytes: int) -> RecordListTooLargeError:
    return RecordListTooLargeError(
        f"{size} bytes for one partition are more than segment.bytes ="
        f" {segment_bytes}: send less at a time"
    )
