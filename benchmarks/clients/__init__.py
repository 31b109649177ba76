"""Clients that we did not write, on Headrace beside Apache Kafka: librdkafka, and Kafka's for Java.

Downloads Apache Kafka 3.9 with its tools from Maven Central (50 MB, once, into --folder). Both
clusters have three brokers, ZooKeeper, six partitions, three replicas and acks=all; all else is as
each ships it. The sides take turns, each first in every other round, after one round to warm up.

  requests    librdkafka sends 100, 500 and 1,000 records a second, each at once in a request of its
              own: until it is acknowledged, and until a consumer has read it
  librdkafka  sends values of 100 B and 1 kB as fast as it can, with its defaults and with large
              batches (linger.ms=20, batch.size=1000000), and reads them all
  java        the same by Kafka's own measuring tools (linger.ms=5, batch.size=131072)

Printed are medians over the rounds, their range, and the ratio of ours to theirs. CLIENT ALONE is
the rate or latency of the same client with a peer that acknowledges what it is sent and keeps
nothing: no broker can do better. Processor time is that of the brokers. Needs Linux, Java 17,
confluent-kafka, 6 GB of memory and of disk; a run takes about ten minutes.

examples:
  headrace bench clients
  headrace bench clients --only requests --seconds 20
  headrace bench clients --rows 1000000 --rounds 5 --json
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
from benchmarks.clients.loads import GROUPS
from storage_engine.tools.arguments import add_json

LEAST_ROWS = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench clients`."""
    add_only(parser, "group", GROUPS)
    add_numbers(
        parser,
        ("--rounds", 3, "measured rounds of each group, after one to warm up"),
        ("--rows", 500_000, "records of 100 B that a client sends; a tenth as many of 1 kB"),
        ("--seconds", 5, "seconds for which records are sent at each steady rate"),
    )
    add_downloads(parser)
    add_dir(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench clients`; 0 also when a goal is missed, as this only measures."""
    check_size(args, LEAST_ROWS)
    from benchmarks.clients.comparison import compare
    from benchmarks.clients.results import COLUMNS, cells

    print_compared(COLUMNS, compare(args), cells, as_json=args.json)
    return 0
