"""Learns the producers and their transactions from the batches of a log. The state after a batch is
the same whether it was appended here, replicated or read back.

A replay of all batches since the newest snapshot takes a second for 300,000 of them, on the event
loop. So a log whose end is dropped learns its producers from a few batches before the cut where
these tell enough: a follower may only drop the one batch that its dead leader sent to nobody else.
A damaged transaction index is rebuilt from the log before it is searched. Source: KIP-98, R-LOG8.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.retained.producer_state import (
    ANY_FORGOTTEN,
    BATCHES_REMEMBERED,
    NONE_FORGOTTEN,
    ProducerEntry,
    ProducerStates,
    SequencedBatch,
)
from storage_engine.core.retained.producer_table import (
    NO_COORDINATOR_EPOCH,
    AbortedTransaction,
    TransactionMarker,
)
from storage_engine.log.files.disk import storage_error
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.segment_list import SegmentList
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


TAIL_BATCHES_MAX = 4096
"""The most batches of a dropped end that are read, some 4 us each."""

FIRST_WINDOW = 1024
"""The offsets before the cut that are read first, and four times as many each time after."""

PART_LOOKED_AT = 4
"""At most one in so many of the segment's offsets is read: a replay reads all of them."""


def producers_of_tail(segment: LogSegment, offset: int) -> set[int] | None:
    """Return the ids of the producers with batches that end at or after `offset` in the log's last
    segment; None where only a replay shows the state without them: the end begins before that
    segment, is long or damaged, or has batches of a transaction."""
    if offset <= segment.base_offset:
        return None
    ids: set[int] = set()
    try:
        found = segment.find(offset)
        if found is None:
            return ids
        for number, (_, header) in enumerate(segment.scan(found[0])):
            if header.is_control or header.is_transactional or number >= TAIL_BATCHES_MAX:
                return None
            if header.producer_id >= 0:
                ids.add(header.producer_id)
    except CorruptRecordError:
        return None
    return ids


def take_back(states: ProducerStates, segment: LogSegment, ids: Collection[int]) -> bool:
    """Bring the producers with these ids to the end of the log's last segment, which was cut since.
    Return False, and change nothing, where reading a part of the segment is not sufficient."""
    known: list[ProducerEntry] = []
    begun: list[int] = []
    left: set[int] = set()
    for producer_id in ids:
        before = states.get(producer_id)
        if before is None:
            return False
        kept = [batch for batch in before.batches if batch.last_offset < segment.next_offset]
        if len(before.batches) < BATCHES_REMEMBERED and kept:
            # None of its epoch is forgotten.
            known.append(_with_batches(before, before.epoch, kept))
        elif _begins_with_what_is_remembered(before) and not kept:
            begun.append(producer_id)
        else:
            left.add(producer_id)
    found = _found_before_the_end(states, segment, left)
    if found is None:
        return False
    states.put_back([*known, *found], without=begun)
    return True


def _begins_with_what_is_remembered(entry: ProducerEntry) -> bool:
    """Whether the producer, which no marker has given another epoch, has written nothing before."""
    return (
        entry.epoch == 0
        and entry.coordinator_epoch == NO_COORDINATOR_EPOCH
        and 0 < len(entry.batches) < BATCHES_REMEMBERED
        and entry.batches[0].first_sequence == 0
    )


def _with_batches(
    before: ProducerEntry, epoch: int, batches: Iterable[SequencedBatch]
) -> ProducerEntry:
    # No marker is behind the cut, so its coordinator's epoch is as it was.
    return ProducerEntry(
        before.producer_id,
        epoch,
        before.last_seen_ms,
        batches,
        coordinator_epoch=before.coordinator_epoch,
    )


def _found_before_the_end(
    states: ProducerStates, segment: LogSegment, ids: Collection[int]
) -> list[ProducerEntry] | None:
    """Return the entries of the producers with these ids, by the batches at the segment's end; None
    where it does not have enough of them."""
    longest = (segment.next_offset - segment.base_offset) // PART_LOOKED_AT
    window = FIRST_WINDOW
    while ids:
        start = max(segment.base_offset, segment.next_offset - window)
        known = _entries_since(states, segment, start, ids)
        if known is None or len(known) == len(ids):
            return known
        window *= 4
        if window > longest:
            return None
    return []


def _entries_since(
    states: ProducerStates, segment: LogSegment, start: int, ids: Collection[int]
) -> list[ProducerEntry] | None:
    """Return the entries that are the same whatever lies before `start`; None when no window is
    wide enough."""
    batches: dict[int, list[SequencedBatch]] = {producer_id: [] for producer_id in ids}
    epochs: dict[int, int] = {}
    whole: set[int] = set()
    """The producers whose epoch changes in the window, which drops their earlier batches."""
    try:
        found = segment.find(start) if segment.next_offset > start else None
        for _, header in segment.scan(found[0]) if found is not None else ():
            producer_id = header.producer_id
            if producer_id not in batches:
                continue
            if header.is_control:
                # No batch of it, and it may have raised the epoch.
                return None
            if epochs.setdefault(producer_id, header.producer_epoch) != header.producer_epoch:
                epochs[producer_id] = header.producer_epoch
                batches[producer_id].clear()
                whole.add(producer_id)
            batches[producer_id].append(
                SequencedBatch(
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
            )
    except CorruptRecordError:
        return None
    entries = []
    for producer_id, some in batches.items():
        before = states.get(producer_id)
        if before is None:
            return None
        if len(some) >= BATCHES_REMEMBERED or producer_id in whole:
            entries.append(_with_batches(before, epochs[producer_id], some))
    return entries


def find_aborted(
    snapshots: ProducerSnapshots, segments: SegmentList, start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """Return aborted transactions with data in [start_offset, end_offset), by ascending marker.
    LogStorageError when the disk fails.

    Their markers may lie in any later segment, so the indexes of these are searched until an entry
    proves that there can't be more.
    """
    found: list[AbortedTransaction] = []
    all_segments = segments.all
    try:
        for segment in all_segments[segments.number_of(start_offset) :]:
            index = segment.transaction_index
            check_transaction_index(snapshots, all_segments, segment)
            if not len(index):
                continue
            some, complete = index.find(start_offset, end_offset)
            found += some
            if complete:
                break
    except OSError as error:
        raise storage_error("read", segments.folder.path, error) from error
    return found


def check_transaction_index(
    snapshots: ProducerSnapshots, segments: Sequence[LogSegment], segment: LogSegment
) -> None:
    """Checks a segment's index before its first use, and before entries are added or cut off.
    Rebuilds the index if it is damaged, and other damaged ones with it, since one pass over the log
    serves all.
    """
    if segment.transaction_index.is_checked or is_good(segment):
        return
    rebuild_transaction_indexes(
        snapshots,
        segments,
        [
            each
            for each in segments
            if each is segment or not (each.transaction_index.is_checked or is_good(each))
        ],
    )


def is_good(segment: LogSegment) -> bool:
    """Return True when the segment's transaction index is intact, judged by its seal, its offsets
    and the marker of its last entry. Logs what is wrong with it."""
    index = segment.transaction_index
    problem = index.problem(segment.base_offset, segment.next_offset)
    if problem is None and len(index):
        last = index.entry(len(index) - 1)
        if not _has_marker(segment, last):
            problem = f"there is no marker at offset {last.last_offset}"
    if problem is not None:
        logger.warning("index damaged, rebuilding file=%s reason=%s", index.file.path, problem)
    index.is_checked = problem is None
    return index.is_checked


def _has_marker(segment: LogSegment, aborted: AbortedTransaction) -> bool:
    try:
        found = segment.find(aborted.last_offset)
    except CorruptRecordError:
        # The log is damaged; its index may be sound all the same.
        return True
    if found is None:
        return False
    header = found[1]
    expected = aborted.producer_id, aborted.last_offset
    return header.is_control and (header.producer_id, header.base_offset) == expected
