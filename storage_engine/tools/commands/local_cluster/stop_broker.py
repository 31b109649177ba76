"""Shut one broker down cleanly: other brokers take over its partitions first. Its data is kept.

example:
  headrace stop-broker --dir ./cluster 2
"""

import argparse

from storage_engine.tools.arguments import add_broker_id, add_directory, add_timeout
from storage_engine.tools.local.local_cluster import STOP_TIMEOUT_S, LocalCluster
from storage_engine.tools.table import write_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace stop-broker`."""
    add_directory(parser)
    add_broker_id(parser)
    add_timeout(
        parser, STOP_TIMEOUT_S, "kill the broker when it still runs after this many seconds"
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace stop-broker`."""
    outcome = LocalCluster(args.dir).stop_broker(args.id, timeout_s=args.timeout)
    write_line(f"broker {args.id} {outcome.value}")
    return 0
