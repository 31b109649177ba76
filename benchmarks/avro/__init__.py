"""Avro with a schema registry in Spark, beside from_avro and to_avro behind Spark's Kafka connector
on Apache Kafka.

Rows of 20 mixed columns, 483 bytes each as JSON, four partitions, three brokers and three replicas
on both sides, acks=all, no compression. Ours reads and writes with value.format=avro and `headrace
registry`, exactly once; theirs cuts off the framing by hand, knows one schema as text, and writes
at least once.

The sides take turns, each first in every other round, after one round to warm up.
Printed are medians over the rounds, their range, the ratio, and the ratio of the processor times.
Downloads what `bench beside-kafka` does (600 MB, once, into --folder), and a jar. Needs Linux,
Java 17, 12 GB of memory and 8 GB of disk.

examples:
  headrace bench avro
  headrace bench avro --only spark-two --rounds 5 --json
"""

import argparse

from benchmarks.arguments import (
    add_dir,
    add_downloads,
    add_numbers,
    add_only,
    check_size,
    print_compared,
)
from benchmarks.avro.rows import ROWS
from benchmarks.typed.rows import COLUMNS, cells
from storage_engine.tools.arguments import add_conf, add_json, pairs

LEAST_ROWS = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench avro`."""
    add_only(parser, "row", [row.name for row in ROWS])
    add_numbers(
        parser,
        ("--rounds", 3, "measured rounds of each row, after one to warm up"),
        ("--rows", 2_000_000, "rows that are read; a quarter as many are written"),
        ("--cores", 2, "cores of each Spark"),
    )
    add_downloads(parser)
    add_dir(parser)
    add_conf(parser, "a setting of both Sparks")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench avro`; 0 also when a goal is missed, as this only measures."""
    check_size(args, LEAST_ROWS)
    args.conf = pairs(args.conf)
    from benchmarks.avro.comparison import compare

    print_compared(COLUMNS, compare(args), cells, as_json=args.json)
    return 0
