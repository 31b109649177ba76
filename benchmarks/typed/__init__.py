"""Typed topics beside JSON on Apache Kafka with Spark's own connector, beside opaque topics, and
beside Apache Fluss.

Rows of 20 mixed columns, 483 bytes each as JSON, four partitions, three brokers and three replicas
everywhere, acks=all. Spark reads and writes them with the format headrace and a typed topic, and
with Spark's Kafka connector, from_json and to_json; the client for Python reads two columns, all
columns, and the rows that match a filter, directly and through a link of limited speed. All sides
have their default compression: none, but Zstandard in Apache Fluss.

The sides take turns, each first in every other round, after one round to warm up.
Printed are medians over the rounds, their range, the ratio, and the ratio of the processor times.
Downloads what `bench beside-kafka` does (600 MB, once, into --folder), and for Apache Fluss 230 MB.
Needs Linux, Java 17, 12 GB of memory and 8 GB of disk.

  small batches  --small-batches alone: what typed batches of 1, 10, 100 and 1,000 rows cost
  Avro           --avro-produce alone: what records of Avro that become columns cost the brokers

examples:
  headrace bench typed
  headrace bench typed --only spark-two --only spark-all --rounds 5
  headrace bench typed --without-fluss --json
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
from benchmarks.typed.rows import COLUMNS, ROWS, cells
from storage_engine.tools.arguments import add_conf, add_json, pairs
from storage_engine.tools.table import print_results

LEAST_ROWS = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench typed`."""
    names = [row.name for row in ROWS]
    add_only(parser, "row", names)
    add_numbers(
        parser,
        ("--rounds", 3, "measured rounds of each row, after one to warm up"),
        ("--rows", 2_000_000, "rows that are read; a quarter as many are written"),
        ("--cores", 2, "cores of each Spark"),
        ("--link", 200, "speed of the link, in megabits per second"),
    )
    parser.add_argument("--without-fluss", action="store_true", help="leave Apache Fluss out")
    parser.add_argument(
        "--small-batches",
        action="store_true",
        help="measure what small typed batches cost, and nothing else; downloads nothing",
    )
    parser.add_argument(
        "--avro-produce",
        action="store_true",
        help="measure what records of Avro cost that become columns, and nothing else; downloads "
        "nothing",
    )
    add_downloads(parser)
    add_dir(parser)
    add_conf(parser, "a setting of both Sparks")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench typed`; 0 also when a goal is missed, as this only measures."""
    check_size(args, LEAST_ROWS)
    args.conf = pairs(args.conf)
    if args.small_batches:
        from benchmarks.typed import small_batches

        costs = small_batches.measure(args.dir, args.rounds)
        print_results(small_batches.COLUMNS, costs, as_json=args.json)
        return 0
    if args.avro_produce:
        from benchmarks.typed import avro_produce

        ratios = avro_produce.produce_ratio(args.dir, avro_produce.RECORDS, args.rounds)
        print_results(avro_produce.COLUMNS, ratios, as_json=args.json)
        return 0
    from benchmarks.typed.comparison import compare

    print_compared(COLUMNS, compare(args), cells, as_json=args.json)
    return 0
