"""Finds the aborted transactions of a range of offsets. A damaged index is rebuilt from the log
first.

Source: KIP-98.
"""

import logging
from collections.abc import Sequence

from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.transactions.partition_transactions import AbortedTransaction
from storage_engine.log.files.storage_errors import storage_error
from storage_engine.log.segments.log_segment import LogSegment
from storage_engine.log.segments.segment_list import SegmentList
from storage_engine.log.state.producer_replay import rebuild_transaction_indexes
from storage_engine.log.state.producer_snapshots import ProducerSnapshots

logger = logging.getLogger(__name__)


def find_aborted(
    snapshots: ProducerSnapshots, segments: SegmentList, start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """Return those with data in [start_offset, end_offset), by ascending marker. LogStorageError
    when the disk fails.

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
