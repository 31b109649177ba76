"""Measures groups with hundreds and thousands of members, and consumers that are restarted.

The members are connections of one process that speak the protocol themselves: the same program for
both sides. A member reconciles as Kafka's client does, sends heartbeats at the interval that the
broker gives, and at once when its partitions have changed. Each row has a broker of its own; with
--beside-kafka then one of Apache Kafka 4 (downloads 45 MB, once, into --folder), in KRaft mode,
with the same settings and the JVM options of Kafka's own start script.

  rebalance   --members on --partitions, each with a fetch that waits 500 ms at most, again and
              again; one more joins, then one leaves. The longest time between two fetches of a
              partition that keeps its owner, beside the same without a change; and how long it
              takes until every partition has its new owner. On ours also the classic protocol.
  heartbeats  --many members of the consumer protocol that only send heartbeats: processor time of
              the broker while they join, and for --seconds when nothing changes
  joins       processor time of a JoinGroup of the last 100 of --classic-members members, and of a
              tenth as many; each arrives by itself
  restarts    ten of Headrace's own consumers, each closed and started again, by both protocols: how
              long after it was written a record was read

Times of rebalances are medians over the rounds, pauses the longest of all rounds. Needs Linux, 2
GB of memory, and twice as many file descriptors as members. The whole takes about 12 minutes,
beside Kafka 20.

examples:
  headrace bench groups
  headrace bench groups --beside-kafka --json
  headrace bench groups --only rebalance --members 50 --partitions 100 --rounds 1
"""

import argparse

from benchmarks.arguments import (
    add_dir,
    add_downloads,
    add_numbers,
    add_only,
    check_dir,
)
from storage_engine.tools.arguments import add_json
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results

ROWS = ("rebalance", "heartbeats", "joins", "restarts")
LEAST_CLASSIC_MEMBERS = 1_000
"""A tenth of them must still have a hundred to measure."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench groups`."""
    add_only(parser, "row", ROWS)
    parser.add_argument(
        "--beside-kafka", action="store_true", help="measure Apache Kafka, too (needs Java 17)"
    )
    add_numbers(
        parser,
        ("--members", 500, "members of the group that one joins and one leaves"),
        ("--partitions", 1000, "partitions of that group's topic"),
        ("--rounds", 3, "members that join, and members that leave"),
        ("--window", 12, "seconds for which fetches are watched: quiet, after a join, a leave"),
        ("--many", 5000, "members that only send heartbeats"),
        ("--seconds", 30, "seconds for which their heartbeats are measured"),
        ("--classic-members", 10_000, "members of the larger group of the classic protocol"),
    )
    add_downloads(parser)
    add_dir(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench groups`; 0 also when a goal is missed, as this only measures."""
    check_dir(args.dir)
    rows = args.only or ROWS
    if "rebalance" in rows and args.partitions < args.members:
        raise UsageError(
            f"--partitions is {args.partitions}; give as many as --members ({args.members}) or more"
        )
    if args.classic_members < LEAST_CLASSIC_MEMBERS:
        raise UsageError(
            f"--classic-members is {args.classic_members}; give {LEAST_CLASSIC_MEMBERS} or more"
        )
    from benchmarks.groups.comparison import measure
    from benchmarks.groups.results import COLUMNS

    print_results(COLUMNS, measure(args, rows), as_json=args.json)
    return 0
