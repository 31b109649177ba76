"""Fetches several ranges in one task: those with the same leader by the same requests.

Rule: a range that can't be read goes aside, with its error, and holds up no other. What is fetched
and not handed on yet is bounded for the task as a whole.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from connector.connections import cluster_for
from connector.options.source_options import SourceOptions
from connector.source.offset_range import OffsetRange
from storage_engine.client.fetching.fetch import BatchFetcher, FetchedBatches
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

HELD_BYTES = 32 << 20
"""The most that a task has fetched and not decoded: one fetch for each leader."""

LEAST_FETCH_BYTES = 256 << 10
"""The least size of a fetch, however many leaders there are."""

POLL_MS = 1_000

GATHERED_ROWS = 10_000
GATHERED_BYTES = 4 << 20
"""Rows of several ranges go to Spark together up to here, because each Arrow record batch costs
half a millisecond on its way, and ranges may have a few rows each."""


class UnreadRange(NamedTuple):
    """What is left of a range, and why it was not read."""

    offset_range: OffsetRange
    error: HeadraceError


def fetch_ranges(
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    unread: list[UnreadRange],
    *,
    guessed_record_bytes: int,
) -> Iterator[list[FetchedBatches]]:
    """What has come of ranges of different partitions, in order within each. An empty list: nothing
    has come for a while. At the end, `unread` has those that could not be read."""
    by_partition = {each.topic_partition: each for each in ranges}

    def put_aside(tp: TopicPartition, position: int, error: HeadraceError) -> None:
        left = replace(by_partition[tp], start_offset=position)
        unread.append(UnreadRange(left, error))

    reader = BatchFetcher(
        cluster_for(options.connection),
        {tp: (each.start_offset, each.end_offset) for tp, each in by_partition.items()},
        max_bytes=_fetch_bytes(options, by_partition),
        isolation=options.isolation_level,
        timeout_ms=options.poll_timeout_ms,
        on_failed=put_aside,
        guessed_offset_bytes=guessed_record_bytes,
    )
    try:
        while not reader.done:
            yield reader.poll(POLL_MS)
    finally:
        reader.close()


def _fetch_bytes(options: SourceOptions, partitions: Collection[TopicPartition]) -> int:
    """The size of a fetch, of which there is one for each leader."""
    cluster = cluster_for(options.connection)
    # A process mostly has it already.
    cluster.metadata(
        {tp.topic for tp in partitions}, max_age_ms=options.connection.metadata_max_age_ms
    )
    leaders = {cluster.known_leader(tp) for tp in partitions}
    brokers = {leader.broker_id for leader in leaders if leader is not None}
    share = HELD_BYTES // max(1, len(brokers))
    return min(options.fetch_bytes, max(share, LEAST_FETCH_BYTES))


class RowGatherer:
    """Joins small Arrow record batches. Rows keep their order."""

    def __init__(self) -> None:
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
        """Returns what is large enough to go on."""
        if batch.num_rows >= GATHERED_ROWS:
            yield from self.rest()
            yield batch
            return
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GATHERED_ROWS or self._bytes >= GATHERED_BYTES:
            yield from self.rest()

    def rest(self) -> "Iterator[pa.RecordBatch]":
        """What waits still."""
        import pyarrow as pa

        waiting, self._waiting = self._waiting, []
        self._rows = self._bytes = 0
        if len(waiting) < 2:
            yield from waiting
        else:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
