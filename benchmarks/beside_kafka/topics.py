"""The topics of both sides: made, filled with the same record batches, counted.

Rule: one client does it for both, so that both logs hold the same bytes, spread evenly over the
partitions.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.support.random_values import random_values
from storage_engine.client.admin.topics import create_topic, delete_topics
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_encoder import EncodedBatch, encode_batches
from storage_engine.tools.errors import CommandError

REPLICAS = 3
VALUE_BYTES = 100

_BATCH_BYTES = 16 << 10
"""The default `batch.size` of Kafka's producers."""
_PIECE_ROWS = 50_000
"""The rows that are encoded once, and sent again and again."""


def fill(servers: str, topic: str, partitions: int, rows: int) -> None:
    """Create a topic, and fill it with `rows` rows, as many in each partition."""
    values = random_values(_PIECE_ROWS, VALUE_BYTES, seed=0)
    whole = encode_batches(values, batch_bytes=_BATCH_BYTES)
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions, REPLICAS)
        with BatchWriter(cluster) as writer:
            left = rows // partitions
            while left:
                count = min(left, _PIECE_ROWS)
                batches = whole
                if count < _PIECE_ROWS:
                    batches = encode_batches(values[:count], batch_bytes=_BATCH_BYTES)
                for batch in batches:
                    # One partition after the other: a request takes one batch of each.
                    for number in range(partitions):
                        # The writer stamps and keeps the bytes: it gets a copy.
                        data = memoryview(bytearray(batch.data))
                        copy = EncodedBatch(data=data, record_count=batch.record_count)
                        writer.append(TopicPartition(topic, number), copy)
                left -= count
    check_rows(servers, topic, partitions, rows)


@contextmanager
def target(servers: str, topic: str, partitions: int, replicas: int = REPLICAS) -> Iterator[str]:
    """Have an empty topic for the time of its measurement, so that disks don't fill up."""
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions, replicas)
        yield topic
        delete_topics(cluster, [topic])


def check_rows(servers: str, topic: str, partitions: int, rows: int) -> None:
    """CommandError if the topic has fewer offsets than `rows`: rows would be missing."""
    numbers = [TopicPartition(topic, number) for number in range(partitions)]
    with Cluster(servers) as cluster:
        ends = cluster.list_offsets(dict.fromkeys(numbers, LATEST))
        starts = cluster.list_offsets(dict.fromkeys(numbers, EARLIEST))
    found = sum(ends.values()) - sum(starts.values())
    if found < rows:
        raise CommandError(f"topic '{topic}' on {servers} has {found} offsets for {rows} rows")
