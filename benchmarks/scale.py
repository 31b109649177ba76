"""Measures what many partitions cost: creation, metadata, memory, failovers and restarts.

The benchmark starts three brokers over loopback and makes topics with three replicas of each
partition, spread over all brokers. Each step is done once. SECONDS is the time on the clock until
the step is over for clients: all partitions accept acks=all, or all replicas are in sync. The
processor time is that of the brokers that ran during the step, and of ZooKeeper; it depends less on
what else the machine does. The longest turn of a broker's event loop is what others had to wait,
also for the processor. --controller-alone measures a controller without brokers and ZooKeeper
instead: its work when it is elected, and when one of --brokers is lost, at sizes that no single
machine can run.

examples:
  headrace bench scale
  headrace bench scale --partitions 4000 --json
  headrace bench scale --controller-alone --partitions 200000 --brokers 100
"""

import argparse

from benchmarks.arguments import add_dir, scratch
from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results, report_line

COLUMNS = ("what", "seconds", "brokers_cpu_s", "zookeeper_cpu_s", "amount", "unit")

MAX_PARTITIONS = 100_000
"""The most partitions: the three brokers and their logs are on one machine."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench scale`."""
    add_dir(parser)
    parser.add_argument(
        "--partitions",
        default=1000,
        type=positive_integer,
        metavar="N",
        help="partitions, with three replicas each (default 1000)",
    )
    parser.add_argument(
        "--controller-alone", action="store_true", help="measure a controller without brokers"
    )
    parser.add_argument(
        "--brokers",
        type=positive_integer,
        metavar="N",
        help="brokers that the controller of --controller-alone manages, 3 or more (default 3)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench scale`."""
    if args.controller_alone:
        return _controller_alone(args)
    if args.brokers is not None:
        raise UsageError("--brokers is for --controller-alone: else there are three")
    if args.partitions > MAX_PARTITIONS:
        raise UsageError(f"--partitions must be at most {MAX_PARTITIONS}: it is one machine")
    from benchmarks.scaling import steps

    with scratch(args.dir) as folder:
        figures = steps.measure(folder, args.partitions, report_line)
        results = list(figures)
    print_results(COLUMNS, results, as_json=args.json)
    return 0


def _controller_alone(args: argparse.Namespace) -> int:
    brokers = 3 if args.brokers is None else args.brokers
    if brokers < 3:
        raise UsageError("--brokers must be at least 3: each partition has three replicas")
    from benchmarks.scaling.controller_alone import measure_controller

    results = list(measure_controller(args.partitions, brokers))
    print_results(COLUMNS, results, as_json=args.json)
    return 0
