"""Measures how long producers wait for acknowledgements while a broker is drained.

The benchmark starts four brokers over loopback, with a topic that has data in each partition. A
steady producer (librdkafka's where confluent-kafka is installed; idempotent, acks=all) sends a
record every 5 ms to a partition that broker 1 leads. After a while `headrace drain 1` moves its
leaders and replicas away. The figure is the 99th percentile of the waits meanwhile, beside that of
the same producer before; the waits of each phase follow. A leader's move alone costs librdkafka its
`retry.backoff.ms` (100 ms), so in a drain of less than ten seconds it decides the percentile. Then
the topic is searched for every acknowledged record.

examples:
  headrace bench drain
  headrace bench drain --partitions 60 --mib 512 --throttle 20000000 --json
"""

import argparse

from benchmarks.arguments import add_dir, add_numbers, scratch
from benchmarks.support.rounds import COLUMNS
from storage_engine.tools.arguments import add_json
from storage_engine.tools.table import print_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench drain`."""
    add_dir(parser)
    add_numbers(
        parser,
        ("--partitions", 24, "partitions of the topic, with three replicas each"),
        ("--mib", 192, "MiB of records in all partitions together"),
        ("--throttle", 50_000_000, "bytes a second of each broker for the moves"),
        ("--wave-partitions", 4, "partitions that move at a time"),
        ("--seconds", 10, "seconds that are measured before"),
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench drain`."""
    from benchmarks.support import drained_broker

    with scratch(args.dir) as folder:
        results = list(drained_broker.measure(folder, args))
    print_results(COLUMNS, results, as_json=args.json)
    return 0
