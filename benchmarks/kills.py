"""Measures how long producers wait when a broker is killed or hangs, and that nothing is lost.

The benchmark starts three brokers over loopback. A steady producer (librdkafka's where
confluent-kafka is installed; idempotent, acks=all, its defaults otherwise) sends a record every
5 ms. Its gap is the longest time between two acknowledgements. A broker that hangs keeps its
connections, so there librdkafka waits for socket.timeout.ms, which is 1 s here. With --kills the
same producer goes on while one leader after another is killed and started again; then the topic
is searched for every acknowledged record.

examples:
  headrace bench kills
  headrace bench kills --rows leader,controller --rounds 10 --json
  headrace bench kills --kills 100
"""

import argparse

from benchmarks.arguments import add_dir, add_numbers, scratch
from benchmarks.support.rounds import COLUMNS
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results

ROWS = ("leader", "controller", "stopped", "partitions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench kills`."""
    add_dir(parser)
    parser.add_argument(
        "--rows",
        default=",".join(ROWS),
        metavar="LIST",
        help=f"rows to measure, separated by commas: {', '.join(ROWS)} (default: all)",
    )
    add_numbers(
        parser,
        ("--rounds", 3, "rounds of each row"),
        ("--partitions", 1000, "partitions that fail over together"),
        ("--session-timeout-ms", 6000, "zookeeper.session.timeout.ms of the brokers"),
    )
    parser.add_argument(
        "--kills",
        type=positive_integer,
        metavar="N",
        help="measure N kills under one producer instead",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench kills`."""
    rows = tuple(args.rows.split(","))
    if unknown := [row for row in rows if row not in ROWS]:
        raise UsageError(f"--rows: there is no row '{unknown[0]}'; there are {', '.join(ROWS)}")
    from benchmarks.support import kill_rounds

    with scratch(args.dir) as folder:
        if args.kills is not None:
            results = list(kill_rounds.under_one_producer(folder, args))
        else:
            results = list(kill_rounds.measure_rows(folder, args, rows))
    print_results(COLUMNS, results, as_json=args.json)
    return 0
