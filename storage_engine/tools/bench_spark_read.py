"""Reads through Spark, measured against a source that has its record batches in memory already.

A cluster of its own in a temporary folder is filled with records of random bytes. Then, in turn,
the format headrace and the in-memory source are read into Spark's sink `noop`, which throws rows
away:

  batch        all records at once: records a second
  micro-batch  small triggers: milliseconds of one trigger, most of which is Spark's own work

The ratio says what the log and its client cost; both sides share the machine's cores with Spark.

examples:
  headrace bench spark-read
  headrace bench spark-read --records 1000000 --json
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage_engine.tools.spark_bench_session import (
    Say,
    add_numbers,
    bench_cluster,
    bench_session,
    in_turn,
    rounds,
    trigger_times_ms,
)
from storage_engine.tools.table import print_results, tell, write_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "bench"

LEAST_BATCH_RATIO = 0.5
MOST_OVERHEAD_RATIO = 1.3
"""What the project asks of itself."""

_LOAD_ROWS = 100_000
_IN_MEMORY_BATCH_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One comparison; the unit is in `measure`."""

    measure: str
    headrace: float
    in_memory: float
    ratio: float
    target: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench spark-read`."""
    add_numbers(
        parser,
        (
            ("--records", 4_000_000, "records in the log"),
            ("--value-bytes", 100, "size of a value"),
            ("--partitions", 2, "of the topic, and Spark tasks"),
            ("--brokers", 1, "brokers of the cluster"),
            ("--rounds", 3, "of each batch read and of each stream"),
            ("--triggers", 20, "micro-batches measured in a round"),
            ("--trigger-rows", 10_000, "records of a micro-batch"),
        ),
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench spark-read`."""
    say = tell if args.json else write_line
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-"))
        servers = stack.enter_context(bench_cluster(Path(folder), args.brokers, say))
        _load(servers, args, say)
        spark = stack.enter_context(bench_session("spark-read"))
        results = [
            _measure_batch(spark, servers, args, say),
            _measure_micro_batch(spark, servers, args, say),
        ]
    columns = ("measure", "headrace", "in memory", "ratio", "target")
    print_results(columns, results, as_json=args.json)
    return 0


def _measure_batch(
    spark: "SparkSession", servers: str, args: argparse.Namespace, say: Say
) -> Result:
    rates: dict[str, list[float]] = {"headrace": [], "in memory": []}
    for turn in rounds(args):
        readers = {
            "headrace": _headrace(spark.read, servers),
            "in memory": _in_memory(spark.read, args, args.records),
        }
        for name, reader in in_turn(readers, turn):
            started = time.perf_counter()
            reader.load().write.format("noop").mode("overwrite").save()
            rate = args.records / (time.perf_counter() - started)
            if turn > 0:
                rates[name].append(rate)
                say(f"batch, round {turn}: {name} {rate:,.0f} records/s")
    ours, theirs = (statistics.median(each) for each in rates.values())
    return Result(
        measure="batch read, records/s",
        headrace=round(ours),
        in_memory=round(theirs),
        ratio=round(ours / theirs, 2),
        target=f">= {LEAST_BATCH_RATIO}",
    )


def _measure_micro_batch(
    spark: "SparkSession", servers: str, args: argparse.Namespace, say: Say
) -> Result:
    rows = args.trigger_rows
    records = rows * (args.triggers + args.warm_up_triggers)
    times_ms: dict[str, list[int]] = {"headrace": [], "in memory": []}
    for turn in rounds(args):
        streams = {
            "headrace": _headrace(spark.readStream, servers).option("maxOffsetsPerTrigger", rows),
            "in memory": _in_memory(spark.readStream, args, records),
        }
        for name, stream in in_turn(streams, turn):
            writer = stream.load().writeStream.format("noop")
            measured_ms = trigger_times_ms(writer, args.triggers, args.warm_up_triggers)
            if turn > 0:
                times_ms[name] += measured_ms
                say(f"micro-batch, round {turn}: {name} {statistics.median(measured_ms):.0f} ms")
    ours, theirs = (statistics.median(each) for each in times_ms.values())
    return Result(
        measure=f"micro-batch of {rows} records, ms",
        headrace=round(ours),
        in_memory=round(theirs),
        ratio=round(ours / theirs, 2),
        target=f"<= {MOST_OVERHEAD_RATIO}",
    )


def _headrace(reader: Any, servers: str) -> Any:
    return (
        reader.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
    )


def _in_memory(reader: Any, args: argparse.Namespace, records: int) -> Any:
    from storage_engine.tools.spark_in_memory import FORMAT

    return (
        reader.format(FORMAT)
        .option("records", records // args.partitions)
        .option("tasks", args.partitions)
        .option("batchRows", _IN_MEMORY_BATCH_ROWS)
        .option("valueBytes", args.value_bytes)
        .option("rowsPerTrigger", args.trigger_rows)
    )


def _load(servers: str, args: argparse.Namespace, say: Say) -> None:
    """Batches of random values, encoded once and sent over and over."""
    from storage_engine.client.admin import create_topic
    from storage_engine.client.cluster import Cluster
    from storage_engine.client.produce import BatchWriter
    from storage_engine.core.ids import TopicPartition
    from storage_engine.protocol.records import EncodedBatch, encode_batches
    from storage_engine.tools.spark_in_memory import random_values

    values = random_values(_LOAD_ROWS, args.value_bytes, seed=0)
    whole = encode_batches(values)
    started = time.perf_counter()
    with Cluster(servers) as cluster:
        create_topic(cluster, TOPIC, args.partitions, args.brokers)
        with BatchWriter(cluster) as writer:
            for partition in range(args.partitions):
                left = args.records // args.partitions
                while left:
                    batches = whole if left >= _LOAD_ROWS else encode_batches(values[:left])
                    for batch in batches:
                        # The writer stamps and keeps the bytes: it gets a copy.
                        copy = EncodedBatch(
                            data=memoryview(bytearray(batch.data)), record_count=batch.record_count
                        )
                        writer.append(TopicPartition(TOPIC, partition), copy)
                    left -= min(left, _LOAD_ROWS)
    seconds = time.perf_counter() - started
    say(f"{args.records:,} records of {args.value_bytes} B written in {seconds:.1f} s")
