"""Checks and records the producers of batches that are appended as columns, all at once.

The state afterwards is the same as after `producer_replay.record_batch` of each. Source: KIP-98,
R-LOG12.
"""

from storage_engine.core.errors import KafkaError
from storage_engine.core.retained.producer_state import (
    BATCHES_REMEMBERED,
    ProducerStates,
    SequencedBatch,
)
from storage_engine.protocol.records.batch_columns import BatchColumns
from storage_engine.protocol.records.record_batch import advance_sequence


def producers_allow(states: ProducerStates, columns: BatchColumns) -> bool:
    """Return True when all batches may be appended, and none of them is a duplicate."""
    if columns.have_no_producer:
        return True
    if not columns.are_in_sequence:
        return False
    sequence = columns.sequences[0]
    last_sequence = advance_sequence(sequence, columns.last_offset_deltas[0])
    try:
        duplicate = states.check(
            columns.producer_ids[0], columns.producer_epochs[0], sequence, last_sequence
        )
    except KafkaError:
        # An append of the batches one by one reports it.
        return False
    return duplicate is None


def record_producers(
    states: ProducerStates, columns: BatchColumns, offsets: list[int], now_ms: int
) -> None:
    """Record appended batches for which `producers_allow` returned True."""
    if columns.have_no_producer:
        return
    count = len(columns)
    # The batches before these would be dropped again at once.
    for number in range(max(0, count - BATCHES_REMEMBERED), count):
        sequence = columns.sequences[number]
        states.record(
            columns.producer_ids[number],
            columns.producer_epochs[number],
            SequencedBatch(
                sequence,
                advance_sequence(sequence, columns.last_offset_deltas[number]),
                offsets[number],
                offsets[number + 1] - 1,
                columns.max_timestamps[number],
            ),
            now_ms=now_ms,
        )
