"""The demo's topics, through Headrace's own client: create, look at, read back.

Nothing here is kept between calls; each answer is what the brokers say now.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from examples.flights.failover import PartitionView, View
from storage_engine.client.admin.topics import create_topic
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.fetching.range_reader import read_range
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.client.retry import Retry
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.records.records import encode_batches, iter_decoded

REPLICAS = 3

MARKERS_WAIT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All records of a topic, those of a partition in the order of their offsets."""

    keys: pa.Array
    values: pa.Array

    def __len__(self) -> int:
        return len(self.keys)


class Topics:
    """A few topics of a cluster."""

    def __init__(self, cluster: Cluster, partitions: Mapping[str, int]) -> None:
        """`cluster` is closed with this; `partitions`: how many each topic has."""
        self._cluster = cluster
        self._partitions = partitions

    def create(self) -> None:
        """Creates them. The data is of 2013: retention by time would delete it at once."""
        for topic, partitions in self._partitions.items():
            create_topic(self._cluster, topic, partitions, REPLICAS, {"retention.ms": "-1"})

    def view(self) -> View:
        """Leader and in-sync replicas of every partition."""
        metadata = self._cluster.metadata(self._partitions)
        return {
            TopicPartition(name, number): PartitionView(
                leader=partition.leader, in_sync=tuple(partition.isr)
            )
            for name, topic in metadata.topics.items()
            for number, partition in topic.partitions.items()
        }

    def ends(self, topics: Iterable[str]) -> dict[str, dict[str, int]]:
        """End offsets, exclusive, by topic and partition, in the form of the stream's progress."""
        return {
            topic: {
                str(part.partition): offset for part, offset in self._offsets(topic, LATEST).items()
            }
            for topic in topics
        }

    def tell_time(self, topic: str, timestamp_ms: int) -> None:
        """Writes a record without key and value, which says only how late it is."""
        (batch,) = encode_batches(
            pa.array([None], pa.binary()), timestamps_ms=pa.array([timestamp_ms], pa.int64())
        )
        with BatchWriter(self._cluster, acks=-1) as writer:
            writer.append(TopicPartition(topic, 0), batch)

    def read(self, topic: str) -> Content:
        """Every committed record of the topic. HeadraceError while a transaction is open."""
        starts, ends = self._offsets(topic, EARLIEST), self._committed_ends(topic)
        keys, values = [], []
        for part, start in starts.items():
            if start == ends[part]:
                continue
            fetched = read_range(self._cluster, part, start, ends[part], isolation="read_committed")
            for records in iter_decoded(
                (piece for each in fetched for piece in each.committed()),
                start_offset=start,
                end_offset=ends[part],
            ):
                keys.append(records.keys)
                values.append(records.values)
        return Content(keys=_joined(keys), values=_joined(values))

    def _committed_ends(self, topic: str) -> dict[TopicPartition, int]:
        """The ends, once the markers of the last micro-batch are everywhere: they are written right
        after its commit."""
        retry = Retry(f"the end of {topic}", Deadline.after(MARKERS_WAIT_MS))
        while True:
            ends = self._offsets(topic, LATEST)
            if ends == self._offsets(topic, LATEST, isolation="read_committed"):
                return ends
            retry.pause(HeadraceError("a transaction is open"))

    def _offsets(
        self, topic: str, which: int, *, isolation: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        parts = [TopicPartition(topic, number) for number in range(self._partitions[topic])]
        return self._cluster.list_offsets(dict.fromkeys(parts, which), isolation=isolation)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cluster.close()


def _joined(columns: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(columns) if columns else pa.array([], pa.binary())
