"""Start a broker that was stopped or killed, with its data and port, and wait until it answers.

The embedded ZooKeeper is started too when it does not run.

example:
  headrace start-broker --dir ./cluster 2
"""

import argparse

from storage_engine.tools.arguments import add_broker_id, add_directory, add_timeout
from storage_engine.tools.local.local_cluster import START_TIMEOUT_S, LocalCluster
from storage_engine.tools.table import report_line, write_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace start-broker`."""
    add_directory(parser)
    add_broker_id(parser)
    add_timeout(
        parser, START_TIMEOUT_S, "give up when the broker does not answer after this many seconds"
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace start-broker`."""
    cluster = LocalCluster(args.dir, progress=report_line)
    started = cluster.start_broker(args.id, timeout_s=args.timeout)
    write_line(f"broker {args.id} {'started' if started else 'runs already'}")
    return 0
