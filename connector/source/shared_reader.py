"""Fetches the ranges of a task: those with the same leader by the same requests.

Rule: a range that can't be read goes aside, with its error, and holds up no other. What is fetched
and not handed on yet is bounded for the task as a whole.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from connector.connections import cluster_for
from connector.options.source_options import SourceOptions
from connector.source.offset_range import OffsetRange
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.typed.projection import TypedWant

HELD_BYTES = 32 << 20
"""The most that a task has fetched and not decoded: one fetch for each leader."""

GUESSED_RECORD_BYTES = 512
"""The assumed record size in a short range, which limits the first fetch because records beyond its
end are thrown away. Larger records cost another fetch."""

LEAST_FETCH_BYTES = 256 << 10
"""The least size of a fetch, however many leaders there are."""


class UnreadRange(NamedTuple):
    """The unread rest of a range, and the error that stopped reading."""

    offset_range: OffsetRange
    error: HeadraceError


def fetch_ranges(
    options: SourceOptions,
    ranges: Sequence[OffsetRange],
    unread: list[UnreadRange] | None = None,
    *,
    typed_wants: Mapping[str, TypedWant] | None = None,
) -> Iterator[FetchedBatches]:
    """Batches of ranges of different partitions, as they come, in order within each. At the end,
    `unread` has the ranges that could not be read; None: that is an error. `typed_wants`: what of
    topics with a schema."""
    by_partition = {each.topic_partition: each for each in ranges}

    def put_aside(tp: TopicPartition, position: int, error: HeadraceError) -> None:
        assert unread is not None
        left = replace(by_partition[tp], start_offset=position)
        unread.append(UnreadRange(left, error))

    return BatchFetcher(
        cluster_for(options.connection),
        {tp: (each.start_offset, each.end_offset) for tp, each in by_partition.items()},
        max_bytes=_fetch_bytes(options, by_partition),
        isolation=options.isolation_level,
        timeout_ms=options.poll_timeout_ms,
        on_failed=None if unread is None else put_aside,
        guessed_offset_bytes=GUESSED_RECORD_BYTES,
        topic_ids=_topic_ids(ranges),
        typed_wants=typed_wants,
    ).read()


def _topic_ids(ranges: Sequence[OffsetRange]) -> dict[str, UUID] | None:
    """The topics' ids; None where the brokers knew no ids when the ranges were planned."""
    known = {each.topic_partition.topic: each.topic_id for each in ranges if each.topic_id}
    return known if all(each.topic_id for each in ranges) else None


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
