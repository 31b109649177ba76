"""Stores batches at the end of a log. They have their offsets and have passed every check.

The segment, its indexes and the producers' state record a batch together. Source: R-LOG1, R-LOG2,
R-LOG12.
"""

from storage_engine.core.errors import LogStorageError
from storage_engine.log.files.disk import Buffer
from storage_engine.log.files.storage_errors import storage_error
from storage_engine.log.log_state import LogState
from storage_engine.log.segments.offset_index import MAX_RELATIVE_OFFSET, PlacedBatch
from storage_engine.log.state.producer_replay import record_batch
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import LENGTH_END


def write_batches(
    log: LogState, records: Buffer, placed: list[PlacedBatch], now_ms: int, stamped: bool
) -> None:
    """Stores batches at their offsets, after a roll if one is due. `stamped`: their time is
    `now_ms`. On LogStorageError none of them is in the log.
    """
    if log.is_closed:
        raise LogStorageError(f"the log in {log.directory} is closed")
    log.segments.check_whole()
    last_base, last_header = placed[-1]
    last_offset = last_base + last_header.last_offset_delta
    if stamped:
        max_timestamp = now_ms
    elif len(placed) == 1:
        max_timestamp = last_header.max_timestamp
    else:
        max_timestamp = max([header.max_timestamp for _, header in placed])
    segment = log.segments.active
    try:
        if log.append_rules.roll_rule.demands_roll(
            segment, len(records), last_offset, max_timestamp, now_ms
        ):
            log.roll(_next_base(segment.next_offset, placed[0][0], last_offset))
            segment = log.segments.active
        index = segment.transaction_index
        if index.has_seal and any(header.is_control for _, header in placed):
            # This is done before anything is stored: an entry must not fail after its batch.
            index.unseal()
    except OSError as error:
        raise storage_error("roll", log.directory, error, unchanged=True) from error
    segment.write(records)
    segment.wrote_ms = now_ms
    position = 0
    for base_offset, header in placed:
        size = LENGTH_END + header.length
        timestamp_ms = now_ms if stamped else header.max_timestamp
        segment.note(size, base_offset + header.last_offset_delta, timestamp_ms)
        if header.producer_id >= 0:
            marker = read_marker(records[position:]) if header.is_control else None
            aborted = record_batch(
                log.producer_state, header, base_offset, timestamp_ms, marker, now_ms=now_ms
            )
            if aborted is not None:
                segment.transaction_index.append(aborted)
        position += size


def _next_base(end_offset: int, first_offset: int, last_offset: int) -> int:
    """Return where the next segment begins: at the log's end, also when offsets are missing after
    it, so that a gap between two segments proves that a crash took an end. Only where the indexes
    do not reach so far it begins with the first batch.
    """
    reaches = last_offset - end_offset <= MAX_RELATIVE_OFFSET
    return end_offset if reaches else first_offset
