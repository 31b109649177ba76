"""Spark's own Kafka connector on Apache Kafka beside the format headrace on Headrace.

Downloads Apache Kafka 3.9 and Spark's Kafka connector from Maven Central, and PySpark 4.2, the
newest version that has that connector there, from PyPI (600 MB, once, into --folder). Both clusters
have three brokers, ZooKeeper, three replicas and acks=all; both Sparks have the same settings, read
the same record batches and run the same queries. Ours writes exactly once, theirs at least once.

The sides take turns, each first in every other round, after one round to warm up. Printed are
medians over the rounds, their range, and the ratio of ours to theirs; the processor time is that of
Spark, its Python workers and the brokers. Needs Linux, Java 17, 8 GB of memory and of disk.

examples:
  headrace bench beside-kafka
  headrace bench beside-kafka --only micro-batch --only micro-batch-copy --rounds 5
  python -m benchmarks.beside_kafka --json
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
from benchmarks.beside_kafka.rows import COLUMNS, ROWS, cells
from storage_engine.tools.arguments import add_conf, add_json, pairs

LEAST_ROWS = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench beside-kafka`."""
    names = [row.name for row in ROWS]
    add_only(parser, "row", names)
    add_numbers(
        parser,
        ("--rounds", 3, "measured rounds of each row, after one to warm up"),
        ("--rows", 4_000_000, "rows that the large jobs read and copy"),
        ("--cores", 2, "cores of each Spark"),
    )
    add_downloads(parser)
    add_dir(parser)
    add_conf(parser, "a setting of both Sparks")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench beside-kafka`."""
    check_size(args, LEAST_ROWS)
    args.conf = pairs(args.conf)
    from benchmarks.beside_kafka.comparison import compare

    print_compared(COLUMNS, compare(args), cells, as_json=args.json)
    return 0
