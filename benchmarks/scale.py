"""Measures what many partitions cost: creation, metadata, memory, failovers and restarts.

The benchmark starts three brokers over loopback and makes topics with three replicas of each
partition, spread over all brokers. Each step is done once. SECONDS is the time on the clock until
the step is over for clients: all partitions accept acks=all, or all replicas are in sync. The
processor time is that of the brokers that ran during the step, and of ZooKeeper; it depends less on
what else the machine does.

examples:
  headrace bench scale
  headrace bench scale --partitions 4000 --json
"""

import argparse
import tempfile
from pathlib import Path

from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results, report_line

COLUMNS = ("what", "seconds", "brokers_cpu_s", "zookeeper_cpu_s", "amount", "unit")

MAX_PARTITIONS = 100_000
"""The three brokers and their logs are on one machine."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench scale`."""
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="directory for the files (default: the system's)"
    )
    parser.add_argument(
        "--partitions",
        default=1000,
        type=positive_integer,
        metavar="N",
        help="partitions, with three replicas each (default 1000)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench scale`."""
    if args.dir is not None and not args.dir.is_dir():
        raise UsageError(f"--dir '{args.dir}' is not a directory; create it first")
    if args.partitions > MAX_PARTITIONS:
        raise UsageError(f"--partitions must be at most {MAX_PARTITIONS}: it is one machine")
    from benchmarks.support import scale_steps

    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=args.dir) as folder:
        steps = scale_steps.measure(Path(folder), args.partitions, report_line)
        results = list(steps)
    print_results(COLUMNS, results, as_json=args.json)
    return 0
