"""Measures how fast `headrace lake` writes topics into Delta tables, and what it takes.

Three brokers and replicas, four partitions, a commit every 5 s. An instance on one core writes a
topic that is full already, and puts its files together. Rows of the typed topic have 20 mixed
columns, those of the opaque one values of 100 random bytes. The limit of their processor time is
that for which Arrow alone encodes the same rows as Parquet.

  typed, opaque  rows a second, and processor time
  visible        rows are written steadily: when is each in the table
  memory         an instance writes 100 topics, of which each has rows waiting
  large          an instance writes a topic with values of a megabyte
  union          Spark reads a topic of which 95 % are in its table and no longer in the log, beside
                 one that is all in its log
  beside-spark   the same beside Structured Streaming from Apache Kafka, with from_json, into Delta
                 by delta-spark; only where it is asked for: it downloads 600 MB

examples:
  headrace bench lake
  headrace bench lake --only typed --rows 500000 --rounds 1 --json
  headrace bench lake --only beside-spark
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.arguments import add_dir, add_downloads, add_numbers, add_only, check_size, scratch
from benchmarks.support.rounds import COLUMNS, Result
from storage_engine.tools.arguments import add_json
from storage_engine.tools.table import print_results

BESIDE_SPARK = "beside-spark"
BY_DEFAULT = ("typed", "opaque", "visible", "memory", "large", "union")
PARTS = (*BY_DEFAULT, BESIDE_SPARK)
_TOPICS = 100
_LEAST_ROWS = 10_000
_LARGE_SHARE = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench lake`."""
    add_only(parser, "part", PARTS)
    add_dir(parser)
    add_downloads(parser)
    add_numbers(
        parser,
        ("--rows", 2_000_000, "rows of a topic"),
        (
            "--rounds",
            2,
            "rounds of the rates: the best counts, beside Spark the median",
        ),
        ("--seconds", 60, "for how long rows are written for `visible`"),
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench lake`."""
    check_size(args, _LEAST_ROWS)
    with scratch(args.dir) as folder:
        results = list(_measured(folder, args))
    print_results(COLUMNS, results, as_json=args.json)
    return 0


def _measured(folder: Path, args: argparse.Namespace) -> Iterator[Result]:
    from benchmarks.beside_kafka.clusters import our_brokers
    from benchmarks.lake.beside_spark import beside_spark
    from benchmarks.lake.lakes import Lakes
    from benchmarks.lake.memory import large_rows, many_topics
    from benchmarks.lake.rates import OPAQUE, TYPED, rates
    from benchmarks.lake.union import united_reads
    from benchmarks.lake.visibility import visible

    parts = args.only or BY_DEFAULT
    with our_brokers(folder) as brokers:
        lakes = Lakes(folder, brokers)
        for name in (TYPED, OPAQUE):
            if name in parts:
                yield from rates(lakes, name, args.rows, args.rounds)
        if "visible" in parts:
            yield visible(lakes, args.seconds)
        if "memory" in parts:
            yield many_topics(lakes, args.rows // _TOPICS)
        if "large" in parts:
            yield large_rows(lakes, max(10, args.rows // _LARGE_SHARE))
        if "union" in parts:
            yield from united_reads(lakes, args.rows, args.rounds)
        if BESIDE_SPARK in parts:
            yield from beside_spark(lakes, args)
