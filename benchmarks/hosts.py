"""Measures a cluster of many brokers on three hosts: start, topics, a lost host, its return.

Each host is a namespace of this machine with an address of its own, a third of the brokers and a
server of ZooKeeper. Partitions have three replicas, one on each host, and min.insync.replicas is 2.
The steps:

  start       until every broker knows all others
  create      until each partition accepts a record with acks=all, and where replicas and preferred
              leaders lie beside the most even placement that separate hosts allow
  host lost   a host without the controller, then the one with it: no packet leaves it any more, and
              all its processes are killed. Told apart: until the controller has noticed the last of
              its brokers, until it has written the last leader, until each partition accepts a
              record with acks=all. Of the whole, what the same time takes without work, and what
              a record to each partition takes, are subtracted
  host back   until all brokers know each other, until all replicas are in sync, and until the
              preferred replicas lead again

SECONDS is time on the clock. The processor time of brokers, of the controller among them and of
ZooKeeper depends less on how many cores there are. Sessions are long, since so many brokers start
on few cores; the loss of a host is noticed when they expire. It needs root, Linux, iproute2 and
util-linux.

examples:
  headrace bench hosts
  headrace bench hosts --brokers 6 --partitions 60 --session-timeout-ms 6000 --json
"""

import argparse

from benchmarks.arguments import add_dir, add_numbers, scratch
from storage_engine.tools.arguments import add_json
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.local.broker_settings import check_cluster_settings, parse_setting
from storage_engine.tools.table import print_results, report_line

COLUMNS = (
    "what", "seconds", "brokers_cpu_s", "controller_cpu_s", "zookeeper_cpu_s", "amount", "limit",
    "unit", "met",
)  # fmt: skip
HOSTS = 3
MOST_BROKERS = 96
MOST_PARTITIONS = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench hosts`."""
    add_dir(parser)
    add_numbers(
        parser,
        ("--brokers", 48, "brokers of all hosts together, a multiple of 3"),
        ("--partitions", 3000, "partitions, with three replicas each"),
        ("--session-timeout-ms", 30_000, "zookeeper.session.timeout.ms, at most 60000"),
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=parse_setting,
        metavar="KEY=VALUE",
        help="setting of all brokers; may be given several times",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench hosts`."""
    if args.brokers % HOSTS or args.brokers > MOST_BROKERS:
        raise UsageError(
            f"--brokers {args.brokers} is impossible; give a multiple of {HOSTS} up to "
            f"{MOST_BROKERS}"
        )
    if args.partitions > MOST_PARTITIONS:
        raise UsageError(f"--partitions must be at most {MOST_PARTITIONS}: it is one machine")
    check_cluster_settings(args.set)
    from benchmarks.machines.host_steps import measure
    from benchmarks.machines.machines import why_not

    if reason := why_not():
        raise CommandError(reason)
    with scratch(args.dir) as folder:
        session = {"zookeeper.session.timeout.ms": str(args.session_timeout_ms)}
        settings = {**session, **dict(args.set)}
        found = measure(folder, args.brokers, args.partitions, settings, report_line)
        results = list(found)
    print_results(COLUMNS, results, as_json=args.json)
    return 0
