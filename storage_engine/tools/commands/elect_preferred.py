"""Make the preferred replica of each partition its leader, when it is in sync. The preferred
replica is the first in the partition's list of replicas.

--json-file limits the election to the partitions that a file names:

  {"partitions": [{"topic": "flights", "partition": 0}]}

examples:
  headrace elect-preferred --bootstrap-server 127.0.0.1:9092
  headrace elect-preferred --bootstrap-server 127.0.0.1:9092 --json-file partitions.json
"""

import argparse
from pathlib import Path

from storage_engine.client.admin.reassignment import elect_leaders
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.arguments import add_bootstrap_server, add_json
from storage_engine.tools.client_settings import connect
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError
from storage_engine.tools.placement.reassign_plan import read_partitions
from storage_engine.tools.table import print_rows, write_line

_LED_BY_PREFERRED = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace elect-preferred`."""
    add_bootstrap_server(parser)
    parser.add_argument(
        "--json-file",
        type=Path,
        metavar="FILE",
        help="JSON file with the partitions (default: all partitions of the cluster)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace elect-preferred`."""
    partitions = None if args.json_file is None else read_partitions(args.json_file)
    with connect(args.bootstrap_server, args.command_config) as cluster:
        outcomes = elect_leaders(cluster, partitions)
    _report(outcomes, as_json=args.json)
    failed = [str(tp) for tp, code in sorted(outcomes.items()) if code not in _LED_BY_PREFERRED]
    if failed:
        raise CommandError(
            "these partitions are not led by their preferred replica, which must be alive and in "
            f"sync: {', '.join(failed)}"
        )
    return 0


def _report(outcomes: dict[TopicPartition, ErrorCode], *, as_json: bool) -> None:
    rows: list[Document] = [
        {"topic": tp.topic, "partition": tp.partition, "outcome": _text(code)}
        for tp, code in sorted(outcomes.items())
    ]
    if rows or as_json:
        print_rows(("topic", "partition", "outcome"), rows, as_json=as_json)
    else:
        write_line("every partition is led by its preferred replica already")


def _text(code: ErrorCode) -> str:
    if code is ErrorCode.NONE:
        return "elected"
    return "led by it already" if code is ErrorCode.ELECTION_NOT_NEEDED else code.meaning
