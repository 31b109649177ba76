"""The batches or frames of a fetch's answer, and those that a reader of committed records sees.

Rule: a walk over an answer finds the same facts in a frame as in the batch that it stands for
(each has the header of its batch, and control batches always come whole), so positions, leader
epochs and transactions are followed in one way. A leader may cut the last batch off, but never a
frame.

The broker names each aborted transaction that touches the fetched range by producer and first
offset; it lasts until that producer's next control batch, which is its abort marker. Source: the
Fetch API, version 4 on; Kafka's consumer does the same.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from storage_engine.protocol.records.record_batch import BatchHeader, iter_headers
from storage_engine.protocol.typed.frames import iter_frames


class FetchedPart(NamedTuple):
    """A batch, a frame, or a run of batches that the leader has skipped."""

    start: int
    """Its first byte in the answer."""
    end: int
    next_offset: int
    """The offset after its last batch."""
    leader_epoch: int
    """The leader epoch of its last batch."""
    header: BatchHeader | None
    """None for a run of skipped batches."""


def iter_parts(records: memoryview, *, framed: bool) -> Iterator[FetchedPart]:
    """Yield all whole parts in order. CorruptRecordError for damaged frames."""
    if framed:
        yield from _frames(records)
        return
    for start, header in iter_headers(records):
        yield FetchedPart(
            start,
            start + header.size_in_bytes,
            header.next_offset,
            header.partition_leader_epoch,
            header,
        )


def _frames(records: memoryview) -> Iterator[FetchedPart]:
    end = 0
    for frame in iter_frames(records):
        start, end = end, end + len(frame.data)
        yield FetchedPart(start, end, frame.next_offset, frame.leader_epoch, frame.header)


def committed(
    records: memoryview,
    aborted_transactions: Sequence[tuple[int, int]],
    *,
    framed: bool = False,
) -> Iterator[memoryview]:
    """The batches (or frames) of `records`, in pieces as large as can be, without aborted ones.

    `aborted_transactions`: (producer id, first offset).
    """
    if not aborted_transactions:
        yield records
        return
    coming = sorted(aborted_transactions, key=lambda transaction: transaction[1])
    aborting: set[int] = set()
    start = end = 0
    for part in iter_parts(records, framed=framed):
        while coming and coming[0][1] < part.next_offset:
            aborting.add(coming.pop(0)[0])
        end = part.end
        header = part.header
        if header is None or header.producer_id not in aborting:
            continue
        if header.is_control:
            aborting.discard(header.producer_id)
        elif header.is_transactional:
            if part.start > start:
                yield records[start : part.start]
            start = end
    if end > start:
        yield records[start:end]


def without_read(
    records: memoryview,
    aborted_transactions: Sequence[tuple[int, int]],
    position: int,
    *,
    framed: bool = False,
) -> tuple[memoryview, tuple[tuple[int, int], ...]]:
    """`records` from the first batch (or frame) on that reaches to `position` or beyond, and the
    transactions of `aborted_transactions` that did not end before it: their producers' next
    transactions may well be committed."""
    left = sorted(aborted_transactions, key=lambda transaction: transaction[1])
    for part in iter_parts(records, framed=framed):
        if part.next_offset > position:
            return records[part.start :], tuple(left)
        header = part.header
        if header is not None and header.is_control:
            ended = (each for each in left if each[0] == header.producer_id)
            first = next(ended, None)
            if first is not None and first[1] <= header.last_offset:
                left.remove(first)
    return records[len(records) :], ()
