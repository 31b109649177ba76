"""Let brokers take new replicas again that 'headrace cordon' or 'headrace drain' has cordoned.

Nothing moves by itself: 'headrace rebalance' gives them their share of what is there.

examples:
  headrace uncordon 4 --bootstrap-server 127.0.0.1:9092
  headrace uncordon host-2 --bootstrap-server 127.0.0.1:9092
"""

import argparse

from storage_engine.tools.commands.placement import cordon

add_arguments = cordon.add_arguments


def run(args: argparse.Namespace) -> int:
    """Run `headrace uncordon`."""
    return cordon.change(args, is_cordoned=False)
