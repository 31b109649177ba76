"""Measures reads through Spark against a source that has its record batches in memory already.

The benchmark fills a cluster in a temporary directory with records of random bytes. Then it reads
the format headrace and the in-memory source by turns into Spark's sink `noop`, which drops all
rows:

  batch                all records at once: records a second
  large micro-batches  a stream over the same records: records a second
  small micro-batches  milliseconds of one, most of which is Spark's own work
  a task               processor time of a task that reads few records, beside an empty task

The ratio shows the cost of the log and its client; both sides share the machine's cores with Spark.

examples:
  headrace bench spark-read
  headrace bench spark-read --records 1000000 --json
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.support.spark_session import (
    CORES,
    SparkBench,
    add_spark_numbers,
    processor_time_s,
    spark_bench,
    triggers_to_the_end,
)
from benchmarks.support.spark_sources import Reader, headrace_source, in_memory_source, load_topic
from storage_engine.tools.table import print_results

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TOPIC = "bench"
SMALL_TOPIC = "bench-small"
"""A topic with the records of all small micro-batches of a stream."""

TASK_TOPIC = "bench-tasks"
"""A topic with a partition for each task, with few records each."""

LEAST_BATCH_RATIO = 0.6
LEAST_STREAM_RATIO = 0.5
MOST_OVERHEAD_RATIO = 1.3
MOST_TASK_RATIO = 1.0
"""The project's own goals."""

SIDES = ("headrace", "in memory")

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
    with spark_bench("spark-read", args) as bench:
        load_topic(bench, TOPIC, args.records)
        load_topic(bench, SMALL_TOPIC, _small_records(args))
        load_topic(bench, TASK_TOPIC, _TASKS * _TASK_ROWS, partitions=_TASKS)
        results = [
            _measure_batch(bench),
            _measure_large_micro_batches(bench),
            _measure_small_micro_batches(bench),
            _measure_tasks(bench),
        ]
    columns = ("measure", "headrace", "in memory", "ratio", "target")
    print_results(columns, results, as_json=args.json)
    return 0


def _small_records(args: argparse.Namespace) -> int:
    return int(args.trigger_rows * (args.triggers + args.warm_up_triggers))


def _measure_batch(bench: SparkBench) -> Result:
    records: int = bench.args.records

    def rate(reader: "DataFrameReader") -> list[float]:
        started = time.perf_counter()
        _read(reader)
        return [records / (time.perf_counter() - started)]

    read = bench.spark.read
    sides = {
        "headrace": lambda: rate(headrace_source(read, bench.servers, TOPIC)),
        "in memory": lambda: rate(_in_memory(bench, read, records, records)),
    }
    found = bench.by_turns("batch", "records/s", sides)
    return _result("batch read, records/s", found, f">= {LEAST_BATCH_RATIO}")


def _measure_large_micro_batches(bench: SparkBench) -> Result:
    rows = min(bench.args.large_trigger_rows, bench.args.records)

    def rate(side: str) -> list[float]:
        triggers = triggers_to_the_end(_stream(bench, side, TOPIC, bench.args.records, rows))
        # The first one of a query also starts it.
        measured = triggers[1:] or triggers
        return [statistics.median(each.rows / each.time_ms * 1000 for each in measured)]

    sides = {side: lambda side=side: rate(side) for side in SIDES}
    found = bench.by_turns("large micro-batches", "records/s", sides)
    what = f"micro-batches of {rows} records, records/s"
    return _result(what, found, f">= {LEAST_STREAM_RATIO}")


def _measure_small_micro_batches(bench: SparkBench) -> Result:
    rows, records = bench.args.trigger_rows, _small_records(bench.args)

    def times_ms(side: str) -> list[int]:
        triggers = triggers_to_the_end(_stream(bench, side, SMALL_TOPIC, records, rows))
        return [each.time_ms for each in triggers[bench.args.warm_up_triggers :]]

    sides = {side: lambda side=side: times_ms(side) for side in SIDES}
    found = bench.by_turns("small micro-batches", "ms", sides)
    return _result(f"micro-batch of {rows} records, ms", found, f"<= {MOST_OVERHEAD_RATIO}")


def _measure_tasks(bench: SparkBench) -> Result:
    """Measure the additional cost, by task, of a read with many tasks over one with two. So
    planning is left out."""
    reader = bench.spark.read

    def time_ms(many: "DataFrameReader", few: "DataFrameReader") -> list[float]:
        many_s, few_s = (_processor_time_of_read(bench, each) for each in (many, few))
        return [(many_s - few_s) * 1000 / (_TASKS - CORES)]

    sides = {
        "headrace": lambda: time_ms(*(_assigned(bench, tasks) for tasks in (_TASKS, CORES))),
        "in memory": lambda: time_ms(*(_doing_nothing(reader, tasks) for tasks in (_TASKS, CORES))),
    }
    found = bench.by_turns("tasks", "ms of processor time each", sides)
    what = f"processor time of a task of {_TASK_ROWS} records, ms"
    return _result(what, found, f"<= {MOST_TASK_RATIO}", digits=1)


def _result(
    measure: str,
    found: Mapping[str, Sequence[float]],
    target: str,
    digits: int | None = None,
) -> Result:
    ours, theirs = (statistics.median(found[side]) for side in SIDES)
    return Result(
        measure=measure,
        headrace=round(ours, digits),
        in_memory=round(theirs, digits),
        ratio=round(ours / theirs, 2),
        target=target,
    )


def _read(reader: "DataFrameReader") -> None:
    reader.load().write.format("noop").mode("overwrite").save()


def _processor_time_of_read(bench: SparkBench, reader: "DataFrameReader") -> float:
    started_s = processor_time_s(bench.spark)
    _read(reader)
    return processor_time_s(bench.spark) - started_s


def _assigned(bench: SparkBench, tasks: int) -> "DataFrameReader":
    assigned = json.dumps({TASK_TOPIC: list(range(tasks))})
    reader = bench.spark.read.format("headrace").option("kafka.bootstrap.servers", bench.servers)
    return reader.option("assign", assigned).option("minRecordsPerPartition", 1)


def _doing_nothing(reader: "DataFrameReader", tasks: int) -> "DataFrameReader":
    """Return a reader whose tasks yield a record batch of one row, as there are no empty ones."""
    return in_memory_source(
        reader, records=1, tasks=tasks, batch_rows=1, value_bytes=1, trigger_rows=1
    )


def _stream(
    bench: SparkBench, side: str, topic: str, records: int, rows: int
) -> "DataStreamWriter":
    """Return a stream over all records of the topic, in micro-batches of `rows`."""
    reader = bench.spark.readStream
    if side == "headrace":
        source = headrace_source(reader, bench.servers, topic).option("maxOffsetsPerTrigger", rows)
    else:
        source = _in_memory(bench, reader, records, rows)
    return source.load().writeStream.format("noop")


def _in_memory(bench: SparkBench, reader: Reader, records: int, trigger_rows: int) -> Reader:
    return in_memory_source(
        reader,
        records=records // bench.args.partitions,
        tasks=bench.args.partitions,
        batch_rows=_IN_MEMORY_BATCH_ROWS,
        value_bytes=bench.args.value_bytes,
        trigger_rows=trigger_rows,
    )
