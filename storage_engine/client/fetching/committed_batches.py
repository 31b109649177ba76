"""Drops the batches of aborted transactions from fetched batches, for read_committed.

The broker names each aborted transaction that touches the fetched range by producer and first
offset; it lasts until that producer's next control batch, which is its abort marker. Source: the
Fetch API, version 4 on; Kafka's consumer does the same.

Frames of a projection are treated as the batches that they stand for: each has the header of its
batch, control batches always come whole, and a run of skipped batches has nothing to leave out.
"""

from collections.abc import Iterator, Sequence

from storage_engine.client.fetching.fetched_parts import iter_parts


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
