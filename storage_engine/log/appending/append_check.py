"""Checks of batches before a log takes them. No file and no state changes until all have passed.

Source: KIP-98; R-REP2.
"""

from storage_engine.core.errors import (
    CorruptRecordError,
    InvalidRecordError,
)
from storage_engine.core.retained.producer_state import ProducerStates, SequencedBatch
from storage_engine.protocol.records.batch_columns import MAX_OFFSET
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import (
    MAGIC,
    BatchHeader,
    crc_matches,
    iter_headers,
)


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


def has_gaps(batches: list[tuple[int, BatchHeader]], next_offset: int) -> bool:
    """Return True when offsets are missing from `next_offset` to the end of the batches: their
    leader's log was compacted.
    """
    if len(batches) == 1:
        return batches[0][1].base_offset > next_offset
    count = sum(header.last_offset_delta + 1 for _, header in batches)
    return batches[-1][1].next_offset - next_offset > count


def follower_batches(
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
