"""Have brokers take no new replicas. Those that they have stay, and are served.

A cordoned broker is left out when topics and partitions are created, and by 'headrace reassign
generate' and 'headrace rebalance'; moving a replica to it is refused. It stays cordoned when it is
restarted, until 'headrace uncordon'. 'headrace drain' cordons, too, and moves the replicas away.

The setting is Kafka's cordoned.log.dirs=* (KIP-1066), which kafka-configs shows and changes.

examples:
  headrace cordon 4 --bootstrap-server 127.0.0.1:9092
  headrace cordon host-2 --bootstrap-server 127.0.0.1:9092
"""

import argparse

from storage_engine.tools.client_settings import connect
from storage_engine.tools.placement.cordons import change_cordons
from storage_engine.tools.placement.options import add_connection, add_target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace cordon`."""
    add_target(parser)
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace cordon`."""
    with connect(args.bootstrap_server, args.command_config) as cluster:
        change_cordons(cluster, args.target, is_cordoned=True, as_json=args.json)
    return 0
