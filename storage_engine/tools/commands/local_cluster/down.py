"""Stop the brokers and the embedded ZooKeeper of a local cluster; the data is kept.

The brokers shut down cleanly, one after the other, and ZooKeeper last. Processes that still run
after --timeout seconds are killed. It is no error when some of them, or all, do not run.

example:
  headrace down --dir ./cluster
"""

import argparse

from storage_engine.tools.arguments import add_directory, add_timeout
from storage_engine.tools.local.local_cluster import STOP_TIMEOUT_S, LocalCluster
from storage_engine.tools.table import report_line, write_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace down`."""
    add_directory(parser)
    add_timeout(parser, STOP_TIMEOUT_S, "kill the processes that still run after this many seconds")


def run(args: argparse.Namespace) -> int:
    """Run `headrace down`."""
    cluster = LocalCluster(args.dir, progress=report_line)
    stopped = cluster.down(timeout_s=args.timeout)
    write_line("all stopped" if stopped else f"nothing was running in {args.dir}")
    return 0
