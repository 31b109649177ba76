"""Show the earliest or latest offset of each partition of topics, or the offset at a time.

examples:
  headrace get-offsets --bootstrap-server 127.0.0.1:9092 --topic orders
  headrace get-offsets --bootstrap-server 127.0.0.1:9092 --topic orders --time earliest --json
"""

import argparse

from storage_engine.client.cluster import EARLIEST, LATEST
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.arguments import TIME_HELP, add_bootstrap_server, add_json, time_ms
from storage_engine.tools.client_settings import connect
from storage_engine.tools.table import print_rows

_ENDS = {"earliest": EARLIEST, "latest": LATEST}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace get-offsets`."""
    add_bootstrap_server(parser)
    parser.add_argument(
        "--topic",
        action="append",
        required=True,
        metavar="TOPIC",
        help="topic to show; repeatable",
    )
    parser.add_argument(
        "--time",
        default="latest",
        type=_at,
        metavar="earliest|latest|TIME",
        help="offset to show: the earliest, the latest, or the offset of the first record at TIME "
        f"or later (default: latest). {TIME_HELP}",
    )
    add_json(parser)


def _at(text: str) -> int:
    return _ENDS[text] if text in _ENDS else time_ms(text)


def run(args: argparse.Namespace) -> int:
    """Run `headrace get-offsets`."""
    with connect(args.bootstrap_server, args.command_config) as cluster:
        asked = {
            TopicPartition(topic, number): args.time
            for topic in args.topic
            for number in cluster.topic(topic).partitions
        }
        found = cluster.list_offsets(asked)
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": None if found[tp] < 0 else found[tp],
        }
        for tp in sorted(found)
    ]
    print_rows(("topic", "partition", "offset"), rows, as_json=args.json)
    return 0
