"""Measures what security costs, beside the same work without it, and how well quotas hold.

  tls      large produces and fetches through SASL_SSL beside PLAINTEXT, for Headrace and, by turns
           in the same run, for Apache Kafka 3.9 (downloads 60 MB, once, into --folder)
  small    small produces of a client that has logged in, to a broker with access rules, beside
           those of an open broker: many in flight, and one by one
  rules    the time to authorize a request with 10,000 access rules, from the cache and without
  quotas   bytes produced and fetched under a quota beside the quota, the share of a processor under
           its quota, and the latency of another client

The sides take turns, each first in every other round, after three rounds to warm up. A
ratio is the median of the rounds' ratios, the spread their lowest and highest. The ratio of
processor times is that of the broker for the same work, which other load on the machine disturbs
less. Clients run in one process and are the same for all sides. MB are 10^6 bytes.

examples:
  headrace bench secured
  headrace bench secured --only rules --only small
  headrace bench secured --only tls --without-kafka --rounds 3 --json
"""

import argparse

from benchmarks.arguments import add_dir, add_downloads, add_numbers, add_only, scratch
from storage_engine.tools.arguments import add_json

PARTS = ("tls", "small", "rules", "quotas")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench secured`."""
    add_only(parser, "part", PARTS)
    add_numbers(
        parser,
        ("--bytes", 512 << 20, "bytes of each round with large requests"),
        ("--requests", 300_000, "requests of each round with small ones"),
        ("--rounds", 5, "rounds of each measurement, after three to warm up"),
        ("--seconds", 30, "seconds of each measurement of a quota"),
    )
    parser.add_argument(
        "--without-kafka", action="store_true", help="leave Apache Kafka out: nothing is downloaded"
    )
    add_downloads(parser)
    add_dir(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench secured`; 0 also when a goal is missed, as this only measures."""
    from benchmarks.secured.rates import with_brokers
    from benchmarks.secured.rules import decisions
    from benchmarks.support.rounds import FIGURE_COLUMNS, Figure
    from storage_engine.tools.table import print_results

    parts = [part for part in PARTS if not args.only or part in args.only]
    figures: list[Figure] = []
    if "rules" in parts:
        figures += decisions(args.rounds)
    if set(parts) - {"rules"}:
        with scratch(args.dir) as folder:
            figures += with_brokers(folder, parts, args)
    print_results(FIGURE_COLUMNS, figures, as_json=args.json)
    return 0
