"""Ranges of partitions, read to their ends."""

from collections.abc import Generator, Mapping
from typing import Any
from uuid import UUID

from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.typed.projection import TypedWant


def read_ranges(
    cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]], **settings: Any
) -> Generator[FetchedBatches, None, None]:
    return BatchFetcher(cluster, ranges, **settings).read(100)


def read_range(
    cluster: Cluster,
    tp: TopicPartition,
    start_offset: int,
    end_offset: int,
    *,
    topic_id: UUID | None = None,
    typed_want: TypedWant | None = None,
    **settings: Any,
) -> Generator[FetchedBatches, None, None]:
    return read_ranges(
        cluster,
        {tp: (start_offset, end_offset)},
        topic_ids=None if topic_id is None else {tp.topic: topic_id},
        typed_wants=None if typed_want is None else {tp.topic: typed_want},
        **settings,
    )
