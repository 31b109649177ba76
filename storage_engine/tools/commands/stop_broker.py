"""Stop one broker in a controlled way: it hands its partitions to others first. The data stays.

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
    add_timeout(parser, STOP_TIMEOUT_S, "kill it after that long")


def run(args: argparse.Namespace) -> int:
    """Run `headrace stop-broker`."""
    outcome = LocalCluster(args.dir).stop_broker(args.id, timeout_s=args.timeout)
    write_line(f"broker {args.id} {outcome.value}")
    return 0
