"""Reads the batches of a cluster's logs as they are stored, whatever their topic's format is."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from uuid import UUID

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.core.errors import ErrorCode, HeadraceError, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import BatchHeader, iter_headers
from storage_engine.protocol.typed.projection import WANT_STORED, TypedWant

FETCH_BYTES = 4 << 20

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""From the offset to the end, exclusive."""


class Throttle:
    """Keeps the mean of the bytes a second below a limit (None: there is no limit), and counts."""

    def __init__(self, bytes_per_s: int | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._began_s = time.monotonic()
        self.bytes = 0

    def took(self, size: int) -> None:
        self.bytes += size
        if self._bytes_per_s is None:
            return
        ahead_s = self.bytes / self._bytes_per_s - (time.monotonic() - self._began_s)
        if ahead_s > 0:
            time.sleep(ahead_s)


def starts_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))


def ends_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The high watermarks."""
    return cluster.list_offsets(dict.fromkeys(partitions, LATEST))


def read_batches(
    cluster: Cluster,
    ranges: Ranges,
    topic_ids: Mapping[str, UUID],
    *,
    throttle: Throttle,
    on_start_moved: Callable[[TopicPartition, int], None],
) -> Iterator[tuple[TopicPartition, memoryview]]:
    """Yield whole batches that begin in the ranges or reach into them. `on_start_moved`: the log
    begins later, at that offset, and is read from there on. KafkaError for which `is_gone` is true
    when a topic was deleted."""

    def go_on_at(tp: TopicPartition, offset: int, start: int, end: int) -> int:
        if offset > end:
            raise KafkaError(
                f"{tp} has lost records while it was read (an unclean election?): repeat the "
                "backup",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        on_start_moved(tp, start)
        return start

    wanted = {tp: (start, end) for tp, (start, end) in ranges.items() if start < end}
    if not wanted:
        return
    reader = BatchFetcher(
        cluster,
        wanted,
        max_bytes=FETCH_BYTES,
        topic_ids=topic_ids,
        typed_wants={tp.topic: TypedWant(WANT_STORED) for tp in wanted},
        on_out_of_range=go_on_at,
    )
    for fetched in reader.read():
        throttle.took(len(fetched.records))
        yield fetched.tp, fetched.records


def between(records: memoryview, start: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield header and bytes of each batch that has offsets from `start` on and begins before
    `end`."""
    for position, header in iter_headers(records):
        if header.base_offset >= end:
            return
        if header.next_offset > start:
            yield header, records[position : position + header.size_in_bytes]


def is_gone(error: HeadraceError) -> bool:
    """Whether a topic was deleted, and perhaps created again."""
    return isinstance(error, KafkaError) and error.code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
