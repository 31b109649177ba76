"""Measures what the log costs, each figure beside its limit from the same run.

In one process it measures appends, reads, reads of evicted bytes, recovery, the scrubber, and the
same work on a large log and a small one. With a broker it measures how long it takes to open many
partitions after a clean stop, the memory, and the acknowledged batches per fsync with
flush.before.ack. All files are in a directory that is removed at the end.

examples:
  headrace bench log
  headrace bench log --dir /data --json
  headrace bench log --bytes 8000000 --large-log 50000000 --rounds 3 --no-broker
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.arguments import add_dir, add_numbers, scratch
from benchmarks.support.rounds import COLUMNS, Result
from storage_engine.tools.arguments import add_json
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results

LEAST_BYTES = 4 << 20
"""A round needs at least these bytes, a few reads of 1 MiB."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench log`."""
    add_dir(parser)
    add_numbers(
        parser,
        ("--bytes", 128 << 20, "bytes appended or read in a round"),
        ("--large-log", 1 << 30, "bytes of the large log"),
        ("--rounds", 5, "rounds of each measurement"),
        ("--partitions", 1000, "partitions of the broker"),
        ("--producers", 16, "producers that wait for the disk"),
        ("--seconds", 4, "seconds for which they produce"),
    )
    parser.add_argument(
        "--no-broker", action="store_true", help="measure only what needs no broker"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench log`."""
    if min(args.bytes, args.large_log) < LEAST_BYTES:
        raise UsageError(f"--bytes and --large-log must be {LEAST_BYTES} at least")
    results: list[Result] = []
    with scratch(args.dir) as folder:
        for result in _measure(args, folder):
            results.append(result)
            print(f"{len(results)}: {result.what}: {result.measured}", file=sys.stderr)
    print_results(COLUMNS, results, as_json=args.json)
    return 0


def _measure(args: argparse.Namespace, folder: Path) -> Iterator[Result]:
    from benchmarks.support import log_broker, log_scrub, log_storage

    plan = log_storage.Plan(folder, args.bytes, args.large_log, args.rounds)
    yield from log_storage.measure(plan)
    yield from log_scrub.measure(folder, size=args.bytes, rounds=args.rounds)
    if not args.no_broker:
        yield from log_broker.measure(folder, args)
