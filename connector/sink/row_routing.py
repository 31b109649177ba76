"""Decides which row goes to which partition. Rows with the same key keep their order, and go where
a Kafka client would send them.

Order of precedence, as in Spark's Kafka connector: the option `topic` before the column `topic`;
the column `partition` before the key; the key by its murmur2 hash; rows without a key go to one
partition after the other. Source: R-CLI1, R-CLI7.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.errors import RowError
from storage_engine.client.producer.partitioner import partitions_for_keys
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_encoder import EncodedBatch

Destinations = npt.NDArray[np.int32]

NO_PARTITION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRows:
    """Rows for one partition, in their order. `keys` and `headers` are None where there is no such
    column."""

    topic_partition: TopicPartition
    values: pa.Array
    keys: pa.Array | None
    headers: pa.Array | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The rows of an Arrow record batch that go to one partition. `rows` copies them, so that all
    partitions of the record batch are known before any of its rows are held twice."""

    topic_partition: TopicPartition
    columns: Mapping[str, pa.Array | None]
    order: pa.Array | None
    """Indices into the columns, ascending; None stands for all rows."""

    def rows(self) -> PartitionRows:
        order = self.order
        columns = {
            name: each if order is None or each is None else each.take(order)
            for name, each in self.columns.items()
        }
        return PartitionRows(topic_partition=self.topic_partition, **columns)


class RoutedRows(NamedTuple):
    """The record batches for one partition, which are made when they are taken."""

    topic_partition: TopicPartition
    batches: Iterator[EncodedBatch]


class Router:
    """Splits Arrow record batches by destination."""

    def __init__(self, *, topic: str | None, partition_count: Callable[[str], int]) -> None:
        """`partition_count` raises a one-line error for a topic that does not exist."""
        self._topic = topic
        self._partition_count = partition_count
        self._turn = random.randrange(2**16)
        """The partition of the next rows without a key. It is random at first, or short tasks would
        all write to partition 0."""

    def route(self, rows: pa.RecordBatch) -> list[Route]:
        """One route for each partition that gets any of `rows`."""
        columns = {field.name.lower(): rows.column(i) for i, field in enumerate(rows.schema)}
        return [
            each
            for topic, picked in self._by_topic(columns, rows.num_rows)
            for each in self._by_partition(topic, picked)
        ]

    def _by_topic(
        self, columns: Mapping[str, pa.Array], row_count: int
    ) -> Iterator[tuple[str, Mapping[str, pa.Array]]]:
        if self._topic is not None:
            yield self._topic, columns
            return
        topics = columns["topic"]
        if topics.null_count:
            raise RowError(
                "NULL_TOPIC",
                f"{topics.null_count} of {row_count} rows have null in the column 'topic'; "
                "fill it, or set the option 'topic'",
            )
        for topic in pc.unique(topics).to_pylist():
            mask = pc.equal(topics, topic)
            whole = pc.all(mask).as_py()
            yield (
                topic,
                columns if whole else {name: each.filter(mask) for name, each in columns.items()},
            )

    def _by_partition(self, topic: str, columns: Mapping[str, pa.Array]) -> Iterator[Route]:
        values = _as_bytes(columns["value"])
        if not len(values):
            return
        keys = _as_bytes(columns["key"]) if "key" in columns else None
        written = {"values": values, "keys": keys, "headers": columns.get("headers")}
        destinations = self.destinations(topic, keys, columns.get("partition"), len(values))
        for partition, order in grouped(destinations):
            yield Route(
                topic_partition=TopicPartition(topic, partition), columns=written, order=order
            )

    def destinations(
        self,
        topic: str,
        keys: pa.Array | None,
        partitions: pa.Array | None,
        row_count: int,
        *,
        column: str = "partition",
    ) -> Destinations:
        """The partition of each row: from `partitions` if not null, else by the hash of its key,
        else the next partition in turn. `column`: the name of `partitions`."""
        count = self._partition_count(topic)
        destinations = np.full(row_count, NO_PARTITION, dtype=np.int32)
        if partitions is not None and partitions.null_count < row_count:
            given = partitions.is_valid().to_numpy(zero_copy_only=False)
            named = partitions.fill_null(0).to_numpy()
            wrong = (named < 0) | (named >= count)
            if wrong.any():
                raise RowError(
                    "NO_SUCH_PARTITION",
                    f"the column '{column}' names partition {named[wrong][0]} of the topic "
                    f"'{topic}', which has partitions 0 to {count - 1}",
                )
            destinations[given] = named[given]
            if given.all():
                return destinations
        if keys is not None and keys.null_count < row_count:
            open_rows = destinations == NO_PARTITION
            by_key = partitions_for_keys(keys, count, null_partition=NO_PARTITION)
            destinations[open_rows] = by_key[open_rows]
        destinations[destinations == NO_PARTITION] = self._turn % count
        self._turn += 1
        return destinations


def _as_bytes(column: pa.Array) -> pa.Array:
    """The column with strings as their UTF-8 bytes, without a copy."""
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def grouped(destinations: Destinations) -> Iterator[tuple[int, pa.Array | None]]:
    """Each partition with the indices of its rows, ascending; None stands for all rows."""
    first = int(destinations[0])
    if (destinations == first).all():
        yield first, None
        return
    # numpy sorts 16-bit integers by radix, which is stable and linear.
    narrow = destinations.astype(np.uint16) if destinations.max() < 2**16 else destinations
    order = np.argsort(narrow, kind="stable")
    in_order = destinations[order]
    bounds = [0, *(np.flatnonzero(np.diff(in_order)) + 1).tolist(), len(order)]
    for start, end in pairwise(bounds):
        yield int(in_order[start]), pa.array(order[start:end])
