"""Measures what replication costs: acks=all on three brokers beside acks=1 on one, and a lost
replica.

The benchmark starts three brokers over loopback, with default settings. First it produces large
batches by turns to a partition with three replicas and acks=all, and to one with a single replica
and acks=1. Then one broker loses its log dir and catches up with the two others, beside a
plain send of as many bytes, while the latency of a steady producer with acks=all is measured. Load
and limits run in processes of their own.

examples:
  headrace bench replication
  headrace bench replication --bytes 67108864 --cold-bytes 134217728 --rounds 1 --json
"""

import argparse

from benchmarks.arguments import add_dir, add_numbers, scratch
from benchmarks.support.rounds import COLUMNS
from storage_engine.tools.arguments import add_json
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results

LEAST_BYTES = 8 << 20
"""A round needs at least these bytes, some requests on each connection."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench replication`."""
    add_dir(parser)
    add_numbers(
        parser,
        ("--bytes", 256 << 20, "bytes produced in a round"),
        ("--cold-bytes", 2 << 30, "bytes of the lost replica"),
        ("--rounds", 3, "rounds of each measurement"),
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench replication`."""
    if min(args.bytes, args.cold_bytes) < LEAST_BYTES:
        raise UsageError(f"--bytes and --cold-bytes must be {LEAST_BYTES} at least")
    from benchmarks.support.replication_rounds import measure

    with scratch(args.dir) as folder:
        results = list(measure(folder, args))
    print_results(COLUMNS, results, as_json=args.json)
    return 0
