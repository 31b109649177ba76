"""What replication costs: acks=all over three brokers beside acks=1 on one, and a lost replica.

Three brokers of its own over loopback, with default settings. First, by turns, large batches to one
partition with three replicas and acks=all, and to one without replicas and acks=1. Then one broker
loses its data folder and catches up with the two others, beside a plain send of as many bytes; a
steady producer with acks=all tells what it notices of that. Load and limits run in processes of
their own.

examples:
  headrace bench replication
  headrace bench replication --bytes 67108864 --cold-bytes 134217728 --rounds 1 --json
"""

import argparse
import tempfile
from pathlib import Path

from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results, report_line

COLUMNS = ("what", "measured", "limit", "ratio", "goal", "met")

LEAST_BYTES = 8 << 20
"""Some requests on each connection."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench replication`."""
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="where the files go (default: the temporary folder)"
    )
    for name, default, meaning in (
        ("--bytes", 256 << 20, "produced in a round"),
        ("--cold-bytes", 2 << 30, "that the lost replica holds"),
        ("--rounds", 3, "of each figure"),
    ):
        parser.add_argument(
            name, default=default, type=positive_integer, metavar="N", help=f"{meaning} ({default})"
        )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench replication`."""
    if min(args.bytes, args.cold_bytes) < LEAST_BYTES:
        raise UsageError(f"--bytes and --cold-bytes must be {LEAST_BYTES} at least")
    if args.dir is not None and not args.dir.is_dir():
        raise UsageError(f"--dir '{args.dir}' is no folder; create it first")
    from benchmarks.support import replication_rounds as bench_replication_rounds

    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=args.dir) as folder:
        plan = bench_replication_rounds.Plan(
            folder=Path(folder),
            bytes_a_round=args.bytes,
            cold_bytes=args.cold_bytes,
            rounds=args.rounds,
            progress=report_line,
        )
        results = list(bench_replication_rounds.measure(plan))
    print_results(COLUMNS, results, as_json=args.json)
    return 0
