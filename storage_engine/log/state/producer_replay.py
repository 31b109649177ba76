"""Learns the producers and their transactions from the batches of a log. The state after a batch is
the same whether it was appended here, replicated or read back.

Source: KIP-98; R-LOG8.
"""

import logging
from collections.abc import Collection, Iterator, Sequence

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.retained.producer_state import (
    ANY_FORGOTTEN,
    BATCHES_REMEMBERED,
    NONE_FORGOTTEN,
    ProducerStates,
    SequencedBatch,
)
from storage_engine.core.transactions.partition_transactions import (
    AbortedTransaction,
    TransactionMarker,
)
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.state.producer_snapshots import ProducerSnapshots
from storage_engine.protocol.records.batch_columns import BatchColumns
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import (
    NO_SEQUENCE,
    BatchHeader,
    advance_sequence,
)

logger = logging.getLogger(__name__)


def record_batch(
    states: ProducerStates,
    header: BatchHeader,
    base_offset: int,
    timestamp_ms: int,
    marker: TransactionMarker | None,
    *,
    now_ms: int,
) -> AbortedTransaction | None:
    """Records a batch of a producer that stands in the log at `base_offset`, whatever offset and
    time its header has in memory; returns the transaction that it aborts, if any.

    `marker` is the content of a control batch.
    """
    if header.is_control:
        return states.record_marker(
            header.producer_id, header.producer_epoch, marker, offset=base_offset, now_ms=now_ms
        )
    last_offset = base_offset + header.last_offset_delta
    states.record(
        header.producer_id,
        header.producer_epoch,
        SequencedBatch(
            header.base_sequence, header.last_sequence, base_offset, last_offset, timestamp_ms
        ),
        now_ms=now_ms,
        in_transaction=header.is_transactional,
    )
    return None


def record_run(
    states: ProducerStates,
    columns: BatchColumns,
    offsets: Sequence[int],
    now_ms: int,
    transactional: Sequence[int] = (),
) -> None:
    """Records batches without markers that stand at these offsets, which end with the one after the
    last, as `record_batch` would. `transactional`: not 0 for each that belongs to a transaction;
    empty where none does."""
    if columns.have_no_producer:
        return
    count = len(columns)
    ids, epochs = columns.producer_ids, columns.producer_epochs
    first = 0
    if not any(transactional):
        transactional = ()
        if ids.count(ids[0]) == epochs.count(epochs[0]) == count:
            # The batches before these would be dropped again at once.
            first = max(0, count - BATCHES_REMEMBERED)
    for number in range(first, count):
        if ids[number] < 0:
            continue
        sequence = columns.sequences[number]
        delta = columns.last_offset_deltas[number]
        states.record(
            ids[number],
            epochs[number],
            SequencedBatch(
                sequence,
                NO_SEQUENCE if sequence < 0 else advance_sequence(sequence, delta),
                offsets[number],
                offsets[number + 1] - 1,
                columns.max_timestamps[number],
            ),
            now_ms=now_ms,
            in_transaction=bool(transactional and transactional[number]),
        )


def load_producers(
    snapshots: ProducerSnapshots,
    segments: Sequence[LogSegment],
    *,
    log_start_offset: int,
    has_gaps: bool,
    now_ms: int,
    damaged: Collection[LogSegment] = (),
) -> ProducerStates:
    """Return the producers at the log's end, from the newest snapshot and the batches after it.

    The transaction indexes of `damaged` segments are written anew, in the same pass if it begins
    early enough.
    """
    loaded = snapshots.load_newest(segments[-1].next_offset)
    if loaded is not None and loaded[0] < segments[0].base_offset:
        # Nothing tells which batches followed: each producer may have gone on since.
        loaded = None
    start = segments[0].base_offset if loaded is None else loaded[0]
    if any(segment.base_offset < start for segment in damaged):
        rebuild_transaction_indexes(snapshots, segments, damaged)
        damaged = ()
    if loaded is None:
        is_whole = log_start_offset == 0 and not has_gaps
        states = ProducerStates(forgotten_to=NONE_FORGOTTEN if is_whole else ANY_FORGOTTEN)
    else:
        states = loaded[1]
    _replay_into(states, segments, start, damaged, now_ms)
    return states


def rebuild_transaction_indexes(
    snapshots: ProducerSnapshots, segments: Sequence[LogSegment], damaged: Collection[LogSegment]
) -> None:
    """Writes the transaction indexes of `damaged` segments anew, from the log's markers."""
    first = min(segment.base_offset for segment in damaged)
    last = max(segment.base_offset for segment in damaged)
    loaded = snapshots.newest_before(first)
    start, states = (segments[0].base_offset, ProducerStates()) if loaded is None else loaded
    concerned = [segment for segment in segments if segment.base_offset <= last]
    _replay_into(states, concerned, start, damaged, 0)


def _replay_into(
    states: ProducerStates,
    segments: Sequence[LogSegment],
    start: int,
    damaged: Collection[LogSegment],
    now_ms: int,
) -> None:
    for segment in damaged:
        segment.transaction_index.is_being_rebuilt = True
        segment.transaction_index.is_checked = False
        segment.transaction_index.clear()
    for segment, aborted in _replay(states, segments, start, now_ms):
        if segment in damaged:
            segment.transaction_index.append(aborted)
    for segment in damaged:
        segment.transaction_index.seal()
        segment.transaction_index.sync()
        segment.transaction_index.is_being_rebuilt = False
        segment.transaction_index.is_checked = True


def _replay(
    states: ProducerStates, segments: Sequence[LogSegment], start: int, now_ms: int
) -> Iterator[tuple[LogSegment, AbortedTransaction]]:
    """Records the batches from offset `start` on; yields the aborted transactions among them."""
    for segment in segments:
        if segment.next_offset <= start or segment.size == 0:
            continue
        try:
            found = segment.find(start)
            if found is None:
                continue
            for position, header in segment.scan(found[0]):
                if header.producer_id < 0 or header.base_offset < start:
                    continue
                aborted = record_batch(
                    states,
                    header,
                    header.base_offset,
                    header.max_timestamp,
                    _marker_at(segment, position, header),
                    now_ms=now_ms,
                )
                if aborted is not None:
                    yield segment, aborted
        except CorruptRecordError as error:
            # Batches behind the damage can't be read by any consumer either.
            states.forgotten_to = ANY_FORGOTTEN
            logger.error(
                "producers are unknown from this segment on segment=%s: %s",
                segment.file.path,
                error,
            )


def _marker_at(segment: LogSegment, position: int, header: BatchHeader) -> TransactionMarker | None:
    if not header.is_control:
        return None
    return read_marker(segment.read_bytes(position, header.size_in_bytes))
