"""Avro with a schema registry in Spark, beside Spark's own from_avro and to_avro.

Rows of 20 mixed columns, 483 bytes each as JSON, four partitions, three brokers and three replicas,
acks=all. Both sides are PySpark 4.2: ours with the format headrace and a registry of ours, theirs
with Spark's Kafka connector on Apache Kafka, which cuts off the five bytes of Confluent's framing
by an expression, and adds them by another. Both read the same record batches. Ours writes exactly
once, theirs at least once. Every row that is read is counted, and a sum over two of its columns
compared in the same job; before that, all columns once.

The sides take turns, each first in every other round, after one round to warm up. Printed are
medians over the rounds, their range, the ratio of ours to theirs, and the processor time of Spark,
its Python workers, the brokers and our registry.

  registry    the start of a registry of 10,000 schemas, and how long a read of one takes

Downloads what `bench beside-kafka` does (600 MB, once, into --folder) and Spark's Avro. Needs
Linux, Java 17, 12 GB of memory and 8 GB of disk.

examples:
  headrace bench avro
  headrace bench avro --only read-all --rows 200000 --rounds 5
  headrace bench avro --only registry-start --only registry-get --json
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
from benchmarks.avro.rows import COLUMNS, ROWS, cells
from storage_engine.tools.arguments import add_conf, add_json, pairs

LEAST_ROWS = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench avro`."""
    add_only(parser, "row", [row.name for row in ROWS])
    add_numbers(
        parser,
        ("--rounds", 3, "measured rounds of each row, after one to warm up"),
        ("--rows", 2_000_000, "rows that Spark reads, and writes"),
        ("--schemas", 10_000, "schemas of the registry, and reads of one"),
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
    from benchmarks.avro.comparison import measure

    print_compared(COLUMNS, measure(args), cells, as_json=args.json)
    return 0
