"""Ranges of several partitions, read to their ends."""

from collections.abc import Iterator, Mapping
from typing import Any

from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetch import BatchFetcher, FetchedBatches
from storage_engine.core.ids import TopicPartition


def read_ranges(
    cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]], **settings: Any
) -> Iterator[FetchedBatches]:
    reader = BatchFetcher(cluster, ranges, **settings)
    try:
        while not reader.done:
            yield from reader.poll(100)
    finally:
        reader.close()
