"""The topics of the comparison: typed ones, opaque ones of as many bytes, and their sizes.

Rule: as many partitions and replicas everywhere; rows are written in the order of time.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from benchmarks.beside_kafka.topics import REPLICAS
from benchmarks.support.random_values import random_values
from benchmarks.typed.columns import PIECE_ROWS, ddl, made_of
from storage_engine.client import Admin, NewTopic, Producer
from storage_engine.client.admin.topics import create_topic, delete_topics
from storage_engine.client.cluster import Cluster

PARTITIONS = 4

_SCHEMA = ddl().replace("id BIGINT", "id BIGINT NOT NULL")


def create_typed(servers: str, topic: str, partitions: int = PARTITIONS) -> None:
    """Create a typed topic without a key, as the JSON beside it has none."""
    new = NewTopic(name=topic, partitions=partitions, replication_factor=REPLICAS)
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([new], schema=_SCHEMA)


def fill_typed(servers: str, topic: str, rows: int) -> None:
    """Create a typed topic, and fill it with the rows from id 0 on."""
    create_typed(servers, topic)
    with Producer({"bootstrap.servers": servers}) as producer:
        for piece in made_of(0, rows):
            producer.send_table(topic, piece)
        producer.flush()


def fill_opaque(servers: str, topic: str, rows: int, value_bytes: int) -> None:
    """Create a topic, and fill it with as many random values of so many bytes."""
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, PARTITIONS, REPLICAS)
    values = pa.table({"value": random_values(PIECE_ROWS, value_bytes, seed=0)})
    with Producer({"bootstrap.servers": servers}) as producer:
        for place in range(0, rows, PIECE_ROWS):
            producer.send_table(topic, values.slice(0, min(PIECE_ROWS, rows - place)))
        producer.flush()


@contextmanager
def target(servers: str, topic: str, *, is_typed: bool) -> Iterator[str]:
    """Have an empty topic for the time of its measurement, so that disks don't fill up."""
    if is_typed:
        create_typed(servers, topic)
    with Cluster(servers) as cluster:
        if not is_typed:
            create_topic(cluster, topic, PARTITIONS, REPLICAS)
        yield topic
        delete_topics(cluster, [topic])


def stored_bytes(servers: str, topic: str) -> int:
    """Return the bytes of one replica of each of the topic's partitions."""
    with Admin({"bootstrap.servers": servers}) as admin:
        folders = [each for found in admin.describe_log_dirs().values() for each in found]
    sizes = [log.size_bytes for each in folders for log in each.replicas if log.tp.topic == topic]
    return sum(sizes) // REPLICAS
