"""Makes brokers look dead that are not, and counts those that lose their leadership for it.

The benchmark starts three brokers over loopback, and keeps both processors busy with --load
processes. Every half minute one broker after the other runs out of descriptors, while more clients
connect than its accept queue holds, so that its port answers nobody. No living broker may be
deposed: its registration in ZooKeeper must stay, and every partition its leader. A steady producer
shows that the cluster works all the time.

examples:
  headrace bench alarms --minutes 2
  headrace bench alarms --minutes 30 --load 16 --json
"""

import argparse

from benchmarks.arguments import add_dir, add_numbers, scratch
from benchmarks.support.rounds import COLUMNS
from storage_engine.tools.arguments import add_json
from storage_engine.tools.table import print_results, report_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench alarms`."""
    add_dir(parser)
    add_numbers(
        parser,
        ("--minutes", 30, "how long"),
        ("--load", 16, "processes that do nothing but compute"),
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench alarms`."""
    from benchmarks.support import alarm_rounds

    with scratch(args.dir) as folder:
        plan = alarm_rounds.AlarmPlan(
            folder=folder, minutes=args.minutes, load=args.load, progress=report_line
        )
        results = list(alarm_rounds.measure(plan))
    print_results(COLUMNS, results, as_json=args.json)
    return 0
