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
from storage_engine.tools.document import Document
from storage_engine.tools.placement.cluster_layout import named_brokers, read_layout
from storage_engine.tools.placement.cordons import ALL_LOG_DIRS, read_cordons, set_cordons
from storage_engine.tools.placement.options import add_connection, add_target
from storage_engine.tools.table import print_rows

_COLUMNS = ("broker", "machine", "state")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace cordon` and `headrace uncordon`."""
    add_target(parser)
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace cordon`."""
    return change(args, is_cordoned=True)


def change(args: argparse.Namespace, *, is_cordoned: bool) -> int:
    """Cordon the broker or host that is named, or take that back, and say what was done."""
    wanted = ALL_LOG_DIRS if is_cordoned else None
    with connect(args.bootstrap_server, args.command_config) as cluster:
        layout = read_layout(cluster)
        brokers = named_brokers(layout, args.target)
        before = read_cordons(cluster, brokers)
        set_cordons(cluster, dict.fromkeys(brokers, wanted))
    state = "cordoned" if is_cordoned else "not cordoned"
    rows: list[Document] = [
        {
            "broker": broker,
            "machine": layout.place(broker).machine,
            "state": f"{state}, as before" if is_same else state,
            "is_cordoned": is_cordoned,
            "changed": not is_same,
        }
        for broker in brokers
        for is_same in [before[broker] == wanted and layout.place(broker).is_alive]
    ]
    print_rows(_COLUMNS, rows, as_json=args.json)
    return 0
