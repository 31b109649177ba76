"""Appends of a partition's leader. An append is stored whole, or the log is as it was and the
producer gets an error that says why.

Checks come first, then a place in the log, then the write. Only the header of each batch is
examined. Source: R-LOG1, R-LOG12, R-REP8, KIP-98.
"""

from contextlib import suppress
from uuid import UUID

from storage_engine.core.errors import (
    CorruptRecordError,
    InvalidRecordError,
    RecordListTooLargeError,
)
from storage_engine.core.retained.producer_state import ProducerStates, SequencedBatch
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.log.append_rules import AppendResult, Requirement, check_typed
from storage_engine.log.log_state import LogState
from storage_engine.log.segments.indexes import PlacedBatch
from storage_engine.protocol.apis.wire import NO_TOPIC_ID
from storage_engine.protocol.records.control_record import encode_marker
from storage_engine.protocol.records.record_batch import (
    BatchHeader,
    patch,
    patch_log_append_time,
    read_header,
    validate_for_append,
)
from storage_engine.protocol.records.record_keys import check_keys


class LeaderAppends:
    """Appends a producer's batches and transaction markers."""

    __slots__ = ("_log",)

    def __init__(self, log: LogState) -> None:
        self._log = log

    @property
    def requirement(self) -> Requirement | None:
        """The requirement for producers' batches; None: any valid batch is appended as it is."""
        return self._log.append_rules.requirement

    def append(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        allow_transactional: bool = True,
        is_checked: bool = False,
        topic_id: UUID = NO_TOPIC_ID,
    ) -> AppendResult:
        """Checks a producer's batches, gives them offsets (in `records` itself if it is writable),
        and stores them.

        `allow_transactional` False: none of them may belong to a transaction, since nobody would
        end it. Control batches are always refused: see `append_marker`. `is_checked`: a preparation
        has looked into the batches as the topic's settings demand, so that this need not: every
        record of a compacted log has a key, and a typed batch is of `topic_id` and fits its schema.
        Raises the producer's error; the log is unchanged then.
        """
        log = self._log
        batches = self._checked(records, allow_transactional, now_ms)
        first_time = check_producers(log.producer_state, batches)
        if first_time is not None:
            return self._duplicate(*first_time)
        if not is_checked:
            requirement = log.append_rules.requirement
            if requirement is not None and requirement.schema is not None:
                check_typed(records, batches, schema=requirement.schema, topic_id=topic_id)
            elif log.append_rules.compacts:
                check_keys(records, batches)
        if records.readonly:
            records = memoryview(bytearray(records))
        return self._store(records, batches, leader_epoch, now_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: TransactionMarker,
        *,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult:
        """Ends the producer's transaction in this partition, as its coordinator demands; a marker
        without data before it is harmless.

        InvalidProducerEpochError, TransactionCoordinatorFencedError: there was a newer producer or
        coordinator, and the log is unchanged.
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
        """Records that the leader has refused these batches of a producer, which will send them
        again."""
        with suppress(CorruptRecordError):
            first = read_header(records)
            if first.producer_id >= 0:
                self._log.producer_state.note_refused(
                    first.producer_id, first.producer_epoch, first.base_sequence
                )

    def start_epoch(self, epoch: int) -> None:
        """Begins the epoch of a leader at the log's end. KafkaError when the log has a newer epoch.
        Touches no file: the next flush does.
        """
        self._log.segments.check_whole()
        self._log.start_epoch(epoch)

    def _checked(
        self, records: memoryview, allow_transactional: bool, now_ms: int
    ) -> list[tuple[int, BatchHeader]]:
        """Return the batches of one append, after the checks that need no state of the log."""
        rules = self._log.append_rules
        batches = validate_for_append(
            records,
            max_message_bytes=rules.max_message_bytes,
            allow_transactional=allow_transactional,
            allow_typed=rules.requirement is not None and rules.requirement.schema is not None,
        )
        if rules.time_limits.are_set and not rules.stamps_append_time:
            for _, header in batches:
                rules.time_limits.check(header, now_ms)
        segment_bytes = rules.roll_rule.segment_bytes
        if len(records) > segment_bytes:
            raise RecordListTooLargeError(
                f"{len(records)} bytes for one partition are more than segment.bytes ="
                f" {segment_bytes}: send less at a time"
            )
        return batches

    def _store(
        self,
        records: memoryview,
        batches: list[tuple[int, BatchHeader]],
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult:
        """Gives an append that has passed all checks its offsets, and writes it."""
        log = self._log
        size = len(records)
        log.room.take(size)
        if leader_epoch != log.leader_epochs.latest_epoch:
            log.start_epoch(leader_epoch)
        stamped = log.append_rules.stamps_append_time
        base_offset = log.segments.active.next_offset
        placed = _place(records, batches, base_offset, leader_epoch, now_ms if stamped else None)
        log.write_batches(records, placed, now_ms, stamped)
        end_offset = log.segments.active.next_offset
        return AppendResult(
            base_offset, end_offset - 1, end_offset, now_ms if stamped else -1, False, size
        )

    def duplicate_of(
        self, records: memoryview, *, allow_transactional: bool = True
    ) -> AppendResult | None:
        """Return where a producer's batches are, if they are stored already; None when they are
        not. The topic's present requirements for batches do not matter for stored ones.
        KafkaError where the batches can be neither."""
        batches = validate_for_append(
            records,
            max_message_bytes=self._log.append_rules.max_message_bytes,
            allow_transactional=allow_transactional,
            allow_typed=True,
        )
        first_time = check_producers(self._log.producer_state, batches)
        return None if first_time is None else self._duplicate(*first_time)

    def _duplicate(self, base_offset: int, last_offset: int, timestamp_ms: int) -> AppendResult:
        log = self._log
        if not log.append_rules.stamps_append_time:
            timestamp_ms = -1
        return AppendResult(base_offset, last_offset, log.log_end_offset, timestamp_ms, True, 0)


def check_producers(
    states: ProducerStates, batches: list[tuple[int, BatchHeader]]
) -> tuple[int, int, int] | None:
    """Check producer ids, epochs and sequences of one append. Return None to go on; when its
    batches are all duplicates, the first and last offset and the time of their first append.

    Raises the producer's error when a sequence or epoch does not fit.
    """
    if len(batches) == 1:
        header = batches[0][1]
        if header.producer_id < 0:
            return None
        duplicate = _check(states, header)
        if duplicate is None:
            return None
        return duplicate.base_offset, duplicate.last_offset, duplicate.timestamp_ms
    headers = [header for _, header in batches if header.producer_id >= 0]
    return _check_several(states, headers, len(batches)) if headers else None


def _check(states: ProducerStates, header: BatchHeader) -> SequencedBatch | None:
    return states.check(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        in_transaction=header.is_transactional,
    )


def _check_several(
    states: ProducerStates, headers: list[BatchHeader], batch_count: int
) -> tuple[int, int, int] | None:
    trial = states.copy_of(header.producer_id for header in headers)
    duplicates = []
    for header in headers:
        duplicate = _check(trial, header)
        if duplicate is not None:
            duplicates.append(duplicate)
            continue
        trial.record(
            header.producer_id,
            header.producer_epoch,
            SequencedBatch(
                header.base_sequence, header.last_sequence, -1, -1, header.max_timestamp
            ),
            now_ms=header.max_timestamp,
            in_transaction=header.is_transactional,
        )
    if not duplicates:
        return None
    if len(duplicates) < batch_count or any(batch.base_offset < 0 for batch in duplicates):
        raise InvalidRecordError(
            "some of the batches of one request are in the log already and some are not:"
            " retry a request as it was sent"
        )
    return duplicates[0].base_offset, duplicates[-1].last_offset, duplicates[-1].timestamp_ms


def _place(
    records: memoryview,
    batches: list[tuple[int, BatchHeader]],
    base_offset: int,
    leader_epoch: int,
    stamp_ms: int | None,
) -> list[PlacedBatch]:
    """Writes consecutive offsets from `base_offset` on, the epoch, and the time of the append if
    given, into `records`.
    """
    placed = []
    for position, header in batches:
        if stamp_ms is not None:
            patch_log_append_time(records, position, stamp_ms)
        patch(records, position, base_offset=base_offset, leader_epoch=leader_epoch)
        placed.append((base_offset, header))
        base_offset += header.last_offset_delta + 1
    return placed
