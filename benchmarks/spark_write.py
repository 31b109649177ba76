"""Measures writes through Spark, exactly once and at least once, against a sink in Python that
keeps its record batches in memory.

The benchmark starts a cluster in a temporary directory. Spark's JVM makes the rows itself, all with
the same value, so that the source costs little, and writes them by turns to each sink:

  batch        all rows at once: records a second
  stream       large micro-batches: records a second
  micro-batch  small ones: milliseconds of one trigger, most of which is Spark's own work

The ratio to the sink in memory shows the cost of the log and its client, the ratio of exactly once
to at least once the cost of the transactions. All sides share the machine's cores.

examples:
  headrace bench spark-write
  headrace bench spark-write --records 1000000 --brokers 3 --json
"""

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.beside_kafka.topics import target
from benchmarks.support.spark_session import (
    SparkBench,
    add_spark_numbers,
    spark_bench,
    trigger_times_ms,
)
from storage_engine.tools.table import print_results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXACTLY_ONCE = "exactly once"
AT_LEAST_ONCE = "at least once"
IN_MEMORY = "in memory"
SINKS = (EXACTLY_ONCE, AT_LEAST_ONCE, IN_MEMORY)

LEAST_BATCH_RATIO = 0.5
LEAST_STREAM_RATIO = 0.45
LEAST_RATIO_TO_AT_LEAST_ONCE = 0.95
MOST_MS_OVER_AT_LEAST_ONCE = 25
"""The project's own goals."""

Rounds = dict[str, list[float]]
"""A figure for each round, by sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One comparison; the unit is in `measure`."""

    measure: str
    exactly_once: float
    beside: str
    other: float
    """The figure of the sink that `beside` names."""
    compared: float
    """A ratio, or additional milliseconds, as `target` says."""
    target: str
    met: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench spark-write`."""
    add_spark_numbers(
        parser,
        ("--records", 2_000_000, "rows of a batch write"),
        ("--value-bytes", 100, "size of a value"),
        ("--partitions", 2, "partitions of the topic, and number of Spark tasks"),
        ("--brokers", 1, "brokers of the cluster"),
        ("--rounds", 3, "rounds of each batch write and of each stream"),
        ("--triggers", 20, "small micro-batches measured in a round"),
        ("--trigger-rows", 10_000, "rows of a small micro-batch"),
        ("--large-triggers", 6, "large micro-batches measured in a round"),
        ("--large-trigger-rows", 200_000, "rows of a large micro-batch"),
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench spark-write`."""
    with spark_bench("spark-write", args) as given:
        bench = _Bench(given)
        batch = bench.batch()
        large = bench.stream(args.large_triggers, args.large_trigger_rows, "records/s")
        small = bench.stream(args.triggers, args.trigger_rows, "ms")
    what = f"micro-batches of {args.large_trigger_rows} rows, records/s"
    results = [
        _ratio("batch write, records/s", batch, IN_MEMORY, LEAST_BATCH_RATIO),
        _ratio(what, large, IN_MEMORY, LEAST_STREAM_RATIO),
        _ratio(what, large, AT_LEAST_ONCE, LEAST_RATIO_TO_AT_LEAST_ONCE),
        _overhead(f"micro-batches of {args.trigger_rows} rows, ms", small),
    ]
    columns = ("measure", EXACTLY_ONCE, "beside", "other", "compared", "target", "met")
    print_results(columns, results, as_json=args.json)
    return 0


class _Bench:
    """Writes to all sinks in turn, each time to a topic of its own."""

    def __init__(self, bench: SparkBench) -> None:
        self._bench = bench
        self._spark = bench.spark
        self._servers = bench.servers
        self._args = bench.args
        self._topics = 0

    def batch(self) -> Rounds:
        """Return records a second, by sink."""

        def measure(sink: str) -> float:
            records = self._args.records
            rows = self._valued(self._spark.range(0, records, 1, self._args.partitions))
            with self._sink(sink) as (name, options):
                started = time.perf_counter()
                rows.write.format(name).options(**options).mode("append").save()
                return float(records / (time.perf_counter() - started))

        return self._all("batch", "records/s", measure)

    def stream(self, triggers: int, rows: int, unit: str) -> Rounds:
        """Return the medians over the micro-batches of each round, by sink."""

        def measure(sink: str) -> float:
            source = self._spark.readStream.format("rate-micro-batch")
            source = source.option("rowsPerBatch", rows)
            frame = self._valued(source.option("numPartitions", self._args.partitions).load())
            with self._sink(sink) as (name, options):
                writer = frame.writeStream.format(name).options(**options)
                times_ms = trigger_times_ms(writer, triggers, self._args.warm_up_triggers)
            time_ms = statistics.median(times_ms)
            return time_ms if unit == "ms" else rows / time_ms * 1000

        return self._all(f"micro-batches of {rows} rows", unit, measure)

    def _all(self, what: str, unit: str, measure: Callable[[str], float]) -> Rounds:
        sides = {sink: lambda sink=sink: [measure(sink)] for sink in SINKS}
        return self._bench.by_turns(what, unit, sides)

    def _valued(self, rows: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        return rows.select(F.lit(bytearray(b"v" * self._args.value_bytes)).alias("value"))

    @contextlib.contextmanager
    def _sink(self, sink: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield format and options; a topic lasts as long as its measurement, so that disks don't
        fill up."""
        from benchmarks.support.spark_in_memory import FORMAT

        if sink == IN_MEMORY:
            yield FORMAT, {}
            return
        self._topics += 1
        topic = f"bench-{self._topics}"
        options = {
            "kafka.bootstrap.servers": self._servers,
            "topic": topic,
            "deliveryGuarantee": sink.replace(" ", "-"),
        }
        with target(self._servers, topic, self._args.partitions, self._args.brokers):
            yield "headrace", options


def _ratio(measure: str, found: Rounds, beside: str, least: float) -> Result:
    ours, theirs = found[EXACTLY_ONCE], found[beside]
    ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
    return Result(
        measure=measure,
        exactly_once=round(statistics.median(ours)),
        beside=beside,
        other=round(statistics.median(theirs)),
        compared=round(ratio, 2),
        target=f">= {least}",
        met=round(ratio, 2) >= least,
    )


def _overhead(measure: str, found: Rounds) -> Result:
    ours, theirs = found[EXACTLY_ONCE], found[AT_LEAST_ONCE]
    more = statistics.median(one - other for one, other in zip(ours, theirs, strict=True))
    return Result(
        measure=measure,
        exactly_once=round(statistics.median(ours)),
        beside=AT_LEAST_ONCE,
        other=round(statistics.median(theirs)),
        compared=round(more),
        target=f"<= {MOST_MS_OVER_AT_LEAST_ONCE} ms more",
        met=round(more) <= MOST_MS_OVER_AT_LEAST_ONCE,
    )
