"""Let brokers take new replicas again that 'headrace cordon' or 'headrace drain' has cordoned.

Nothing moves by itself: 'headrace rebalance' gives them their share of what is there.

examples:
  headrace uncordon 4 --bootstrap-server 127.0.0.1:9092
  headrace uncordon host-2 --bootstrap-server 127.0.0.1:9092
"""

import argparse

from storage_engine.tools.client_settings import connect
from storage_engine.tools.placement.cordons import change_cordons
from storage_engine.tools.placement.options import add_connection, add_target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace uncordon`."""
    add_target(parser)
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace uncordon`."""
    with connect(args.bootstrap_server, args.command_config) as cluster:
        change_cordons(cluster, args.target, is_cordoned=False, as_json=args.json)
    return 0
