"""Merge the state-change logs of several brokers by time, to show what the whole cluster did.

Each broker writes changes of leaders and in-sync replicas to its state-change.log: beside its
--log-file, or else in the first directory of log.dirs; for 'headrace up' it is in DIR/broker-<id>.
Rotated files (state-change.log.1 …) may be given too, in any order. Times are in UTC, and each
broker's times are taken from its own clock.

examples:
  headrace merge-state-log cluster/broker-*/state-change.log*
  headrace merge-state-log b1.log b2.log --topic flights --partitions 0,3
  headrace merge-state-log b*.log --from 2026-11-21T20:40 --to 2026-11-21T20:45:30
"""

import argparse
import heapq
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path

from storage_engine.tools.arguments import natural_number
from storage_engine.tools.inspection.state_change_log import StateChange, read_state_changes
from storage_engine.tools.table import write_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace merge-state-log`."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="state-change log")
    parser.add_argument("--topic", metavar="TOPIC", help="show only changes of this topic")
    parser.add_argument(
        "--partitions",
        type=_partitions,
        metavar="P[,P…]",
        help="show only changes of the partitions with these numbers",
    )
    for option, name, meaning in (
        ("--from", "start", "show only changes at that time or later (UTC, ISO 8601)"),
        ("--to", "end", "show only changes before that time (UTC, ISO 8601)"),
    ):
        parser.add_argument(option, dest=name, type=_moment, metavar="TIME", help=meaning)
    parser.add_argument("--json", action="store_true", help="print one JSON document per change")


def run(args: argparse.Namespace) -> int:
    """Run `headrace merge-state-log`."""
    changes = merge(args.files)
    for change in changes:
        if _is_asked_for(change, args):
            write_line(_document(change) if args.json else _line(change))
    return 0


def merge(files: Iterable[Path]) -> Iterator[StateChange]:
    """The changes of all files by time; those of one moment in the order of the files, but a
    rotated file before the one that came after it.
    """
    oldest_first = sorted(files, key=_rotation, reverse=True)
    return heapq.merge(*map(read_state_changes, oldest_first), key=attrgetter("time"))


def _rotation(file: Path) -> int:
    """Return 3 for state-change.log.3, which is older than state-change.log.2; 0 for the newest."""
    suffix = file.suffix.removeprefix(".")
    return int(suffix) if suffix.isdecimal() else 0


def _is_asked_for(change: StateChange, args: argparse.Namespace) -> bool:
    return (
        (args.topic is None or change.partition.topic == args.topic)
        and (args.partitions is None or change.partition.partition in args.partitions)
        and (args.start is None or change.time >= args.start)
        and (args.end is None or change.time < args.end)
    )


def _line(change: StateChange) -> str:
    return f"{change.time_text} broker={change.broker} {change.text}"


def _document(change: StateChange) -> str:
    return json.dumps(
        {
            "time": change.time_text,
            "broker": change.broker,
            **change.partition._asdict(),
            "change": change.text,
        },
        ensure_ascii=False,
    )


def _partitions(text: str) -> frozenset[int]:
    return frozenset(natural_number(part) for part in text.split(","))


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a time such as 2026-11-21T20:40:00"
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
