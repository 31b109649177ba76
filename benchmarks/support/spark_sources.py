"""The sources that benchmarks of the Spark format read: a topic of random values, and the same rows
in memory.
"""

import time
from typing import TYPE_CHECKING, TypeVar

from benchmarks.support.spark_session import SparkBench

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

Reader = TypeVar("Reader", "DataFrameReader", "DataStreamReader")

_LOAD_ROWS = 100_000


def headrace_source(reader: Reader, servers: str, topic: str) -> Reader:
    """Return a reader of all records of `topic`."""
    return (
        reader.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )


def in_memory_source(
    reader: Reader,
    *,
    records: int,
    tasks: int,
    batch_rows: int,
    value_bytes: int,
    trigger_rows: int,
) -> Reader:
    """Return a reader of rows in memory, `records` in each task."""
    from benchmarks.support.spark_in_memory import FORMAT

    return (
        reader.format(FORMAT)
        .option("records", records)
        .option("tasks", tasks)
        .option("batchRows", batch_rows)
        .option("valueBytes", value_bytes)
        .option("rowsPerTrigger", trigger_rows)
    )


def load_topic(
    bench: SparkBench, topic: str, records: int, *, partitions: int | None = None
) -> None:
    """Fill a topic with batches of random values, encoded once and sent over and over."""
    from benchmarks.support.random_values import random_values
    from storage_engine.client.admin.topics import create_topic
    from storage_engine.client.cluster import Cluster
    from storage_engine.client.producer.produce import BatchWriter
    from storage_engine.core.ids import TopicPartition
    from storage_engine.protocol.records.record_encoder import EncodedBatch, encode_batches

    partitions = partitions or bench.args.partitions
    values = random_values(_LOAD_ROWS, bench.args.value_bytes, seed=0)
    whole = encode_batches(values)
    started = time.perf_counter()
    with Cluster(bench.servers) as cluster:
        create_topic(cluster, topic, partitions, bench.args.brokers)
        with BatchWriter(cluster) as writer:
            for partition in range(partitions):
                left = records // partitions
                while left:
                    batches = whole if left >= _LOAD_ROWS else encode_batches(values[:left])
                    for batch in batches:
                        # The writer stamps and keeps the bytes: it gets a copy.
                        copy = EncodedBatch(
                            data=memoryview(bytearray(batch.data)), record_count=batch.record_count
                        )
                        writer.append(TopicPartition(topic, partition), copy)
                    left -= min(left, _LOAD_ROWS)
    seconds = time.perf_counter() - started
    bench.say(f"{records:,} records of {bench.args.value_bytes} B written in {seconds:.1f} s")
