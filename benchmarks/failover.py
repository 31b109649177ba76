"""Measures how long partitions have no leader when a broker is killed or stopped, or a controller
is killed.

The benchmark starts three brokers over loopback, with default settings. One topic has many
partitions, all led by one broker, which leads them again before each round. The results are those
of the worst round. Times are counted from the signal; the failover of all partitions is counted
from the time at which ZooKeeper notified the controller, according to the controller's log. The
producers are Headrace's own: the package needs no other.

examples:
  headrace bench failover
  headrace bench failover --partitions 100 --rounds 1 --json
"""

import argparse

from benchmarks.arguments import add_dir, add_numbers, scratch
from benchmarks.support.rounds import COLUMNS
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.table import print_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench failover`."""
    add_dir(parser)
    add_numbers(
        parser,
        ("--partitions", 1000, "partitions that the broker leads, with three replicas each"),
        ("--rounds", 3, "rounds of each measurement"),
    )
    parser.add_argument(
        "--session-timeout-ms",
        type=positive_integer,
        metavar="MS",
        help="zookeeper.session.timeout.ms of the brokers (default: the default of the setting)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench failover`."""
    from benchmarks.support.failover_rounds import measure

    with scratch(args.dir) as folder:
        results = list(measure(folder, args))
    print_results(COLUMNS, results, as_json=args.json)
    return 0
