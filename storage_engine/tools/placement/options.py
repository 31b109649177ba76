"""Options of the commands that carry plans out, and what they make of them."""

import argparse
from pathlib import Path

from storage_engine.client.cluster import Cluster
from storage_engine.tools.arguments import add_bootstrap_server, add_json, positive_integer
from storage_engine.tools.placement.executor import Executor
from storage_engine.tools.placement.progress_line import ProgressLine
from storage_engine.tools.placement.waves import WAVE_BYTES, WAVE_PARTITIONS, WaveLimits


def add_execution(parser: argparse.ArgumentParser, state_name: str) -> None:
    """Declare the options of throttle, waves, state and undo. `state_name`: of the default file."""
    parser.add_argument(
        "--throttle",
        type=positive_integer,
        metavar="BYTES",
        help="limit the replication traffic of the moves to BYTES per second, for each broker that "
        "sends and each that receives; it must be more than producers write meanwhile to the "
        "partitions that move, or they never catch up (default: no limit)",
    )
    parser.add_argument(
        "--wave-partitions",
        type=positive_integer,
        default=WAVE_PARTITIONS,
        metavar="N",
        help=f"partitions that move at a time (default {WAVE_PARTITIONS})",
    )
    parser.add_argument(
        "--wave-bytes",
        type=positive_integer,
        default=WAVE_BYTES,
        metavar="BYTES",
        help="bytes that are copied at a time; a larger partition moves alone (default "
        f"{WAVE_BYTES})",
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="file in which the command keeps the replicas before and after, to go on after it was "
        f"killed and for --undo (default: {state_name} in the current directory)",
    )
    parser.add_argument(
        "--undo",
        action="store_true",
        help="cancel what is under way, and move back what was moved",
    )


def add_target(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Declare `BROKER|HOST`."""
    parser.add_argument(
        "target",
        metavar="BROKER|HOST",
        nargs=None if required else "?",
        help="id of a broker, or the broker.host.name of all brokers of a machine",
    )


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Declare the options of every command here."""
    add_bootstrap_server(parser)
    add_json(parser)


def executor_of(cluster: Cluster, args: argparse.Namespace) -> Executor:
    limits = WaveLimits(partitions=args.wave_partitions, bytes_copied=args.wave_bytes)
    return Executor(cluster, ProgressLine(), limits=limits, throttle=args.throttle)
