"""Measures where the time of a small micro-batch goes, phase by phase as Spark reports them.

The benchmark starts a cluster in a temporary directory. It combines the source and the sink of the
format headrace with a source and a sink in Python that do nothing. The time that a phase takes
longer with headrace is ours, the rest is Spark's own.

  latestOffset   the source is asked how far the next micro-batch goes
  walCommit      Spark writes its offset log, and reports the committed offsets to the source
  queryPlanning  Spark plans the query
  addBatch       ranges are handed out, tasks run, the sink commits
  commitOffsets  Spark writes its commit log; neither source nor sink has a part in it

Figures are medians in milliseconds, `whole` is the time from one micro-batch to the next.

examples:
  headrace bench spark-phases
  headrace bench spark-phases --partitions 24 --trigger-rows 1000 --brokers 3
"""

import argparse
import statistics
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.support.spark_session import (
    CORES,
    SparkBench,
    Trigger,
    add_spark_numbers,
    spark_bench,
    triggers_to_the_end,
)
from benchmarks.support.spark_sources import headrace_source, in_memory_source, load_topic
from storage_engine.tools.table import print_results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SOURCE_TOPIC = "bench-source"
SINK_TOPIC = "bench-sink"

PHASES = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")

Pair = tuple[str, str]
"""The source and the sink of a query."""

PAIRS: tuple[Pair, ...] = (
    ("headrace", "noop"),
    ("in memory", "noop"),
    ("headrace", "headrace"),
    ("in memory", "headrace"),
    ("in memory", "in memory"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The median micro-batch of a query, in milliseconds."""

    query: str
    whole: int
    latest_offset: int
    wal_commit: int
    query_planning: int
    add_batch: int
    commit_offsets: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench spark-phases`."""
    add_spark_numbers(
        parser,
        ("--value-bytes", 100, "size of a value"),
        ("--partitions", 6, "partitions of both topics"),
        ("--brokers", 1, "brokers of the cluster"),
        ("--rounds", 3, "rounds of each query"),
        ("--triggers", 20, "micro-batches measured in a round"),
        ("--trigger-rows", 10_000, "records of a micro-batch"),
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench spark-phases`."""
    from storage_engine.client.admin.topics import create_topic
    from storage_engine.client.cluster import Cluster

    with spark_bench("spark-phases", args) as bench:
        load_topic(bench, SOURCE_TOPIC, _records(args))
        with Cluster(bench.servers) as cluster:
            create_topic(cluster, SINK_TOPIC, args.partitions, args.brokers)
        sides = {" to ".join(pair): partial(_triggers, bench, pair) for pair in PAIRS}
        found = bench.by_turns("phases", "ms", sides)
    columns = ("query", "whole", *PHASES)
    print_results(columns, [_median(*each) for each in found.items()], as_json=args.json)
    return 0


def _records(args: argparse.Namespace) -> int:
    records: int = args.trigger_rows * (args.triggers + args.warm_up_triggers)
    return records


def _triggers(bench: SparkBench, pair: Pair) -> list[Trigger]:
    return triggers_to_the_end(_stream(bench, pair))[bench.args.warm_up_triggers :]


def _stream(bench: SparkBench, pair: Pair) -> "DataStreamWriter":
    from benchmarks.support.spark_in_memory import FORMAT

    source, sink = pair
    rows = _rows(bench, source).select("value")
    if sink == "headrace":
        options = {"kafka.bootstrap.servers": bench.servers, "topic": SINK_TOPIC}
        return rows.writeStream.format("headrace").options(**options)
    return rows.writeStream.format(FORMAT if sink == "in memory" else sink)


def _rows(bench: SparkBench, source: str) -> "DataFrame":
    args, reader = bench.args, bench.spark.readStream
    if source == "headrace":
        found = headrace_source(reader, bench.servers, SOURCE_TOPIC)
        found = found.option("maxOffsetsPerTrigger", args.trigger_rows)
    else:
        found = in_memory_source(
            reader,
            records=_records(args) // CORES,
            tasks=CORES,
            batch_rows=max(1, args.trigger_rows // CORES),
            value_bytes=args.value_bytes,
            trigger_rows=args.trigger_rows,
        )
    frame: DataFrame = found.load()
    return frame


def _median(query: str, triggers: list[Trigger]) -> Result:
    def middle_ms(phase: str) -> int:
        return round(statistics.median(each.phases_ms.get(phase, 0) for each in triggers))

    return Result(
        query=query,
        whole=round(statistics.median(each.time_ms for each in triggers)),
        latest_offset=middle_ms("latestOffset"),
        wal_commit=middle_ms("walCommit"),
        query_planning=middle_ms("queryPlanning"),
        add_batch=middle_ms("addBatch"),
        commit_offsets=middle_ms("commitOffsets"),
    )
