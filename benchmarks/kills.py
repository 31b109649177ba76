"""Measures how long producers wait when a broker is killed or hangs, and that nothing is lost.

The benchmark starts three brokers over loopback. A steady producer (librdkafka's where
confluent-kafka is installed; idempotent, acks=all, its defaults otherwise) sends a record every
5 ms. Its gap is the longest time between two acknowledgements. A broker that hangs keeps its
connections, so there librdkafka waits for socket.timeout.ms, which is 1 s here. With --kills the
same producer goes on while one leader after another is killed and started again; then the topic
is searched for every acknowledged record.

With --machines each broker has a machine of its own (namespaces of processes and of the network),
beside a server of ZooKeeper; it needs root. Leaders are killed there, and machines unplugged, with
and without ZooKeeper's leader on them; the row 'load' keeps this computer busy instead, tells the
longest time without an answer of ZooKeeper, and counts the living brokers that lose their sessions
or are deposed: it tells which session fits a machine.

examples:
  headrace bench kills
  headrace bench kills --rows leader,controller --rounds 10 --json
  headrace bench kills --kills 100
  headrace bench kills --machines --kills 20
  headrace bench kills --machines --rows unplugged --rounds 10 --session-timeout-ms 2500
  headrace bench kills --machines --rows load --load-s 1800 --session-timeout-ms 2500 --tick-ms 200
"""

import argparse
from collections.abc import Sequence

from benchmarks.arguments import add_dir, add_numbers, scratch
from benchmarks.support.rounds import COLUMNS
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results

ROWS = ("leader", "controller", "stopped", "partitions")
MACHINE_ROWS = ("killed", "unplugged", "unplugged-zookeeper")
LOAD = "load"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench kills`."""
    add_dir(parser)
    parser.add_argument(
        "--rows",
        metavar="LIST",
        help=f"rows to measure, separated by commas: {', '.join(ROWS)} (default: all); with "
        f"--machines {', '.join(MACHINE_ROWS)} (default: these), {LOAD}",
    )
    add_numbers(
        parser,
        ("--rounds", 3, "rounds of each row"),
        ("--partitions", 1000, "partitions that fail over together"),
        ("--session-timeout-ms", 6000, "zookeeper.session.timeout.ms of the brokers"),
        ("--tick-ms", 500, "with --machines: tickTime of ZooKeeper"),
        ("--sync-limit-ms", 2000, "with --machines: syncLimit of ZooKeeper, of whole ticks"),
        ("--load-s", 300, "with --machines: seconds of the row 'load'"),
    )
    parser.add_argument(
        "--kills",
        type=positive_integer,
        metavar="N",
        help="measure N kills under one producer instead",
    )
    parser.add_argument(
        "--machines",
        action="store_true",
        help="put each broker on a machine of its own; needs root",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench kills`."""
    known = (*MACHINE_ROWS, LOAD) if args.machines else ROWS
    rows = _rows(args, known)
    with scratch(args.dir) as folder:
        if args.machines:
            from benchmarks.machines import machine_rounds

            results = list(machine_rounds.measure_on_machines(folder, args, rows))
        else:
            from benchmarks.support import kill_rounds

            measured = (
                kill_rounds.under_one_producer(folder, args)
                if args.kills is not None
                else kill_rounds.measure_rows(folder, args, rows)
            )
            results = list(measured)
    print_results(COLUMNS, results, as_json=args.json)
    return 0


def _rows(args: argparse.Namespace, known: Sequence[str]) -> tuple[str, ...]:
    if args.rows is None:
        if not args.machines:
            return ROWS
        return MACHINE_ROWS if args.kills is None else MACHINE_ROWS[:1]
    rows = tuple(args.rows.split(","))
    if unknown := [row for row in rows if row not in known]:
        raise UsageError(f"--rows: there is no row '{unknown[0]}'; there are {', '.join(known)}")
    return rows
