"""Finds the aborted transactions of a range of offsets. Its one rule: an index that can't be
believed is rebuilt from the log before anything is answered.

Source: KIP-98.
"""

import logging
from collections.abc import Sequence

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.transactions.partition_transactions import AbortedTransaction
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.state.producer_replay import rebuild_transaction_indexes
from storage_engine.log.state.producer_snapshots import ProducerSnapshots

logger = logging.getLogger(__name__)


def find_aborted(
    snapshots: ProducerSnapshots,
    segments: Sequence[LogSegment],
    number: int,
    start_offset: int,
    end_offset: int,
) -> list[AbortedTransaction]:
    """Those with data in [start_offset, end_offset), by ascending marker; `start_offset` lies in
    segment `number`.

    Their markers may lie in any later segment, so that these are looked through until one entry
    says that there can't be more.
    """
    found: list[AbortedTransaction] = []
    for position in range(number, len(segments)):
        segment = segments[position]
        index = segment.transaction_index
        check_transaction_index(snapshots, segments, segment)
        if not len(index):
            continue
        some, complete = index.find(start_offset, end_offset)
        found += some
        if complete:
            break
    return found


def check_transaction_index(
    snapshots: ProducerSnapshots, segments: Sequence[LogSegment], segment: LogSegment
) -> None:
    """Before the first use of a segment's index, and before entries are added or cut off: rebuilds
    it if it is damaged, and others with it, since the log is gone through for all at once.
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
    """Whether its index is as it was written, as far as seal, offsets and the last entry's marker
    tell; what is wrong with it is said in the log."""
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
        # The log is damaged, which says nothing against its index.
        return True
    if found is None:
        return False
    header = found[1]
    expected = aborted.producer_id, aborted.last_offset
    return header.is_control and (header.producer_id, header.base_offset) == expected
