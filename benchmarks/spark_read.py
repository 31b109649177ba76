"""Measures reads through Spark against a source that has its record batches in memory already.

The benchmark fills a cluster in a temporary directory with records of random bytes. Then it reads
the format headrace and the in-memory source by turns into Spark's sink `noop`, which drops all
rows:

  batch                all records at once: records a second
  large micro-batches  a stream over the same records: records a second
  small micro-batches  milliseconds of one, most of which is Spark's own work
  a task               processor time of one that reads few records, beside one that does nothing

The ratio shows the cost of the log and its client; both sides share the machine's cores with Spark.

examples:
  headrace bench spark-read
  headrace bench spark-read --records 1000000 --json
"""

import argparse
import contextlib
import json
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.arguments import scratch
from benchmarks.support.spark_session import (
    CORES,
    Say,
    add_spark_numbers,
    bench_cluster,
    bench_session,
    in_turn,
    processor_time_s,
    rounds,
    triggers_to_the_end,
)
from benchmarks.support.spark_sources import headrace_source, in_memory_source, load_topic
from storage_engine.tools.table import print_results, report_line, write_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TOPIC = "bench"
SMALL_TOPIC = "bench-small"
"""As many records as the small micro-batches of a stream have together."""

TASK_TOPIC = "bench-tasks"
"""A task a partition, with few records each."""

LEAST_BATCH_RATIO = 0.6
LEAST_STREAM_RATIO = 0.5
MOST_OVERHEAD_RATIO = 1.3
MOST_TASK_RATIO = 1.0
"""The project's own goals."""

_TASKS = 40
_TASK_ROWS = 1_000
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
    add_spark_numbers(
        parser,
        ("--records", 4_000_000, "records in the log"),
        ("--value-bytes", 100, "size of a value"),
        ("--partitions", 2, "partitions of the topic, and number of Spark tasks"),
        ("--brokers", 1, "brokers of the cluster"),
        ("--rounds", 3, "rounds of each batch read and of each stream"),
        ("--triggers", 20, "small micro-batches measured in a round"),
        ("--trigger-rows", 10_000, "records of a small micro-batch"),
        ("--large-trigger-rows", 1_000_000, "records of a large micro-batch"),
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench spark-read`."""
    say = report_line if args.json else write_line
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch())
        servers = stack.enter_context(bench_cluster(folder, args.brokers, say))
        load_topic(servers, TOPIC, args.records, args, say)
        small = args.trigger_rows * (args.triggers + args.warm_up_triggers)
        load_topic(servers, SMALL_TOPIC, small, args, say)
        load_topic(servers, TASK_TOPIC, _TASKS * _TASK_ROWS, args, say, partitions=_TASKS)
        spark = stack.enter_context(bench_session("spark-read"))
        results = [
            _measure_batch(spark, servers, args, say),
            _measure_large_micro_batches(spark, servers, args, say),
            _measure_small_micro_batches(spark, servers, args, say),
            _measure_tasks(spark, servers, args, say),
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
            "headrace": headrace_source(spark.read, servers, TOPIC),
            "in memory": _in_memory(spark.read, args, args.records, args.records),
        }
        for name, reader in in_turn(readers, turn):
            started = time.perf_counter()
            reader.load().write.format("noop").mode("overwrite").save()
            rate = args.records / (time.perf_counter() - started)
            if turn > 0:
                rates[name].append(rate)
                say(f"batch, round {turn}: {name} {rate:,.0f} records/s")
    return _rates("batch read, records/s", rates, LEAST_BATCH_RATIO)


def _measure_large_micro_batches(
    spark: "SparkSession", servers: str, args: argparse.Namespace, say: Say
) -> Result:
    rows = min(args.large_trigger_rows, args.records)
    rates: dict[str, list[float]] = {"headrace": [], "in memory": []}
    for turn in rounds(args):
        for name, stream in in_turn(_streams(spark, servers, args, TOPIC, rows), turn):
            triggers = triggers_to_the_end(stream)
            # The first one of a query also starts it.
            measured = triggers[1:] or triggers
            rate = statistics.median(each.rows / each.time_ms * 1000 for each in measured)
            if turn > 0:
                rates[name].append(rate)
                say(f"large micro-batches, round {turn}: {name} {rate:,.0f} records/s")
    return _rates(f"micro-batches of {rows} records, records/s", rates, LEAST_STREAM_RATIO)


def _rates(measure: str, rates: dict[str, list[float]], least: float) -> Result:
    ours, theirs = (statistics.median(each) for each in rates.values())
    return Result(
        measure=measure,
        headrace=round(ours),
        in_memory=round(theirs),
        ratio=round(ours / theirs, 2),
        target=f">= {least}",
    )


def _measure_small_micro_batches(
    spark: "SparkSession", servers: str, args: argparse.Namespace, say: Say
) -> Result:
    rows = args.trigger_rows
    times_ms: dict[str, list[int]] = {"headrace": [], "in memory": []}
    for turn in rounds(args):
        for name, stream in in_turn(_streams(spark, servers, args, SMALL_TOPIC, rows), turn):
            measured = triggers_to_the_end(stream)[args.warm_up_triggers :]
            measured_ms = [each.time_ms for each in measured]
            if turn > 0:
                times_ms[name] += measured_ms
                middle_ms = statistics.median(measured_ms)
                say(f"small micro-batches, round {turn}: {name} {middle_ms:.0f} ms")
    ours, theirs = (statistics.median(each) for each in times_ms.values())
    return Result(
        measure=f"micro-batch of {rows} records, ms",
        headrace=round(ours),
        in_memory=round(theirs),
        ratio=round(ours / theirs, 2),
        target=f"<= {MOST_OVERHEAD_RATIO}",
    )


def _measure_tasks(
    spark: "SparkSession", servers: str, args: argparse.Namespace, say: Say
) -> Result:
    """What a read with many tasks costs more than one with two, by task. So planning is left
    out."""
    times_ms: dict[str, list[float]] = {"headrace": [], "in memory": []}
    for turn in rounds(args):
        readers = {
            "headrace": [_assigned(spark.read, servers, tasks) for tasks in (_TASKS, CORES)],
            "in memory": [_doing_nothing(spark.read, tasks) for tasks in (_TASKS, CORES)],
        }
        for name, many_and_few in in_turn(readers, turn):
            many_s, few_s = (_processor_time_of_read(spark, each) for each in many_and_few)
            time_ms = (many_s - few_s) * 1000 / (_TASKS - CORES)
            if turn > 0:
                times_ms[name].append(time_ms)
                say(f"tasks, round {turn}: {name} {time_ms:.1f} ms of processor time each")
    ours, theirs = (statistics.median(each) for each in times_ms.values())
    return Result(
        measure=f"processor time of a task of {_TASK_ROWS} records, ms",
        headrace=round(ours, 1),
        in_memory=round(theirs, 1),
        ratio=round(ours / theirs, 2),
        target=f"<= {MOST_TASK_RATIO}",
    )


def _processor_time_of_read(spark: "SparkSession", reader: Any) -> float:
    started_s = processor_time_s(spark)
    reader.load().write.format("noop").mode("overwrite").save()
    return processor_time_s(spark) - started_s


def _assigned(reader: Any, servers: str, tasks: int) -> Any:
    assigned = json.dumps({TASK_TOPIC: list(range(tasks))})
    return (
        reader.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("assign", assigned)
        .option("minRecordsPerPartition", 1)
    )


def _doing_nothing(reader: Any, tasks: int) -> Any:
    """Its tasks yield one record batch with one row, as there are no empty ones."""
    return in_memory_source(
        reader, records=1, tasks=tasks, batch_rows=1, value_bytes=1, trigger_rows=1
    )


def _streams(
    spark: "SparkSession", servers: str, args: argparse.Namespace, topic: str, rows: int
) -> "dict[str, DataStreamWriter]":
    """Over all that `topic` has, in micro-batches of `rows`."""
    records = args.records
    if topic == SMALL_TOPIC:
        records = rows * (args.triggers + args.warm_up_triggers)
    readers = {
        "headrace": headrace_source(spark.readStream, servers, topic).option(
            "maxOffsetsPerTrigger", rows
        ),
        "in memory": _in_memory(spark.readStream, args, records, rows),
    }
    return {name: reader.load().writeStream.format("noop") for name, reader in readers.items()}


def _in_memory(reader: Any, args: argparse.Namespace, records: int, trigger_rows: int) -> Any:
    return in_memory_source(
        reader,
        records=records // args.partitions,
        tasks=args.partitions,
        batch_rows=_IN_MEMORY_BATCH_ROWS,
        value_bytes=args.value_bytes,
        trigger_rows=trigger_rows,
    )
