"""Drops the batches of aborted transactions from fetched batches, for read_committed.

The broker names each aborted transaction that touches the fetched range by producer and first
offset; it lasts until that producer's next control batch, which is its abort marker. Source: the
Fetch API, version 4 on; Kafka's consumer does the same.
"""

from collections.abc import Iterator, Sequence

from storage_engine.protocol.records.record_batch import iter_headers


def committed(
    records: memoryview, aborted_transactions: Sequence[tuple[int, int]]
) -> Iterator[memoryview]:
    """The batches of `records`, in pieces as large as can be, without aborted ones.

    `aborted_transactions`: (producer id, first offset).
    """
    if not aborted_transactions:
        yield records
        return
    coming = sorted(aborted_transactions, key=lambda transaction: transaction[1])
    aborting: set[int] = set()
    start = end = 0
    for position, header in iter_headers(records):
        while coming and coming[0][1] <= header.last_offset:
            aborting.add(coming.pop(0)[0])
        end = position + header.size_in_bytes
        if header.producer_id not in aborting:
            continue
        if header.is_control:
            aborting.discard(header.producer_id)
        elif header.is_transactional:
            if position > start:
                yield records[start:position]
            start = end
    if end > start:
        yield records[start:end]


def without_read(
    records: memoryview, aborted_transactions: Sequence[tuple[int, int]], position: int
) -> tuple[memoryview, tuple[tuple[int, int], ...]]:
    """`records` from the first batch on that reaches to `position` or beyond, and the transactions
    of `aborted_transactions` that did not end before it: their producers' next transactions may
    well be committed."""
    left = sorted(aborted_transactions, key=lambda transaction: transaction[1])
    for start, header in iter_headers(records):
        if header.last_offset >= position:
            return records[start:], tuple(left)
        if header.is_control:
            ended = (each for each in left if each[0] == header.producer_id)
            first = next(ended, None)
            if first is not None and first[1] <= header.last_offset:
                left.remove(first)
    return records[len(records) :], ()
