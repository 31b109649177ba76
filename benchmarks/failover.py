"""How long partitions are without a leader: a broker killed, a broker stopped, a controller killed.

Three brokers of its own over loopback, with default settings, hold one topic of many partitions
that one of them leads; its leadership is given back between the rounds. The worst round is told.
Times are counted from the signal, the failover of all partitions from the moment when ZooKeeper
told the controller (its log). Producers are Headrace's own: the package needs no other.

examples:
  headrace bench failover
  headrace bench failover --partitions 100 --rounds 1 --json
"""

import argparse
import tempfile
from pathlib import Path

from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results, report_line

COLUMNS = ("what", "measured", "limit", "ratio", "goal", "met")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench failover`."""
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="where the files go (default: the temporary folder)"
    )
    for name, default, meaning in (
        ("--partitions", 1000, "led by the broker that goes, three replicas each"),
        ("--rounds", 3, "of each figure"),
    ):
        parser.add_argument(
            name, default=default, type=positive_integer, metavar="N", help=f"{meaning} ({default})"
        )
    parser.add_argument(
        "--session-timeout-ms",
        type=positive_integer,
        metavar="MS",
        help="zookeeper.session.timeout.ms of the brokers (its default)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench failover`."""
    if args.dir is not None and not args.dir.is_dir():
        raise UsageError(f"--dir '{args.dir}' is no folder; create it first")
    from benchmarks.support import failover_rounds as bench_failover_rounds

    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=args.dir) as folder:
        plan = bench_failover_rounds.Plan(
            folder=Path(folder),
            partitions=args.partitions,
            rounds=args.rounds,
            session_timeout_ms=args.session_timeout_ms,
            progress=report_line,
        )
        results = list(bench_failover_rounds.measure(plan))
    print_results(COLUMNS, results, as_json=args.json)
    return 0
