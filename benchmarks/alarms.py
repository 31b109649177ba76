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
import tempfile
from pathlib import Path

from storage_engine.tools.arguments import add_json, positive_integer
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results, report_line

COLUMNS = ("what", "measured", "limit", "ratio", "goal", "met")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace bench alarms`."""
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="directory for the files (default: the system's)"
    )
    for name, default, meaning in (
        ("--minutes", 30, "how long"),
        ("--load", 16, "processes that do nothing but compute"),
    ):
        parser.add_argument(
            name,
            default=default,
            type=positive_integer,
            metavar="N",
            help=f"{meaning} (default {default})",
        )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace bench alarms`."""
    if args.dir is not None and not args.dir.is_dir():
        raise UsageError(f"--dir '{args.dir}' is not a directory; create it first")
    from benchmarks.support import alarm_rounds

    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=args.dir) as folder:
        plan = alarm_rounds.AlarmPlan(
            folder=Path(folder), minutes=args.minutes, load=args.load, progress=report_line
        )
        results = list(alarm_rounds.measure(plan))
    print_results(COLUMNS, results, as_json=args.json)
    return 0
