"""Send dead letters back to the topics they came from, each exactly once.

A dead letter is a record that a pipeline has rejected: connector.with_dead_letters writes it, with
the reason and its origin in headers. It is sent back with its key, value and headers, to the
partition it came from. Each transaction commits the letters it sends together with the command's
position, so that a run that was killed, or is repeated, sends no letter twice. Letters that are not
selected stay in their topic; those before a selected letter move to the end of their partition.

examples:
  headrace replay-dead-letters rejected --bootstrap-server 127.0.0.1:9092 --dry-run
  headrace replay-dead-letters rejected --bootstrap-server 127.0.0.1:9092 --reason 'not a number'
  headrace replay-dead-letters rejected --bootstrap-server 127.0.0.1:9092 --topic orders \\
      --since 2026-04-01T00:00+00:00 --limit 1000
"""

import argparse
import time

from storage_engine.letter_replay.replay import LetterReplay
from storage_engine.letter_replay.selection import LetterSelection, Survey
from storage_engine.tools.arguments import (
    TIME_HELP,
    add_bootstrap_server,
    add_json,
    positive_integer,
    time_ms,
)
from storage_engine.tools.client_settings import connect
from storage_engine.tools.document import Document
from storage_engine.tools.table import print_json, print_table, report_line, write_line

PROGRESS_S = 1.0
"""The interval between two lines of progress."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace replay-dead-letters`."""
    parser.add_argument("letters", metavar="TOPIC", help="topic that holds the dead letters")
    add_bootstrap_server(parser)
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME",
        help="send only letters that came from this topic; repeatable (default: all)",
    )
    parser.add_argument(
        "--since",
        type=time_ms,
        metavar="TIME",
        help=f"send only letters whose record is of that time or later; {TIME_HELP}",
    )
    parser.add_argument(
        "--until",
        type=time_ms,
        metavar="TIME",
        help="send only letters whose record is from before that time",
    )
    parser.add_argument(
        "--reason",
        metavar="REGEX",
        help="send only letters whose reason contains a match of this expression",
    )
    parser.add_argument(
        "--limit",
        type=positive_integer,
        metavar="N",
        help="stop after N letters (default: no limit)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be sent, and send nothing"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace replay-dead-letters`."""
    selection = LetterSelection(
        topics=frozenset(args.topic),
        since_ms=args.since,
        until_ms=args.until,
        reason=args.reason,
    )
    with connect(args.bootstrap_server, args.command_config) as cluster:
        replay = LetterReplay(cluster, args.letters, selection, limit=args.limit)
        survey = replay.survey()
        sent = 0 if args.dry_run else replay.run(survey, _Progress(survey.selected))
    if args.json:
        print_json(_document(survey, sent, dry_run=args.dry_run))
    else:
        _print(survey, sent, dry_run=args.dry_run)
    return 0


class _Progress:
    """Lines to stderr, where they disturb no program that reads the result."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._told_at_s = time.monotonic()

    def __call__(self, sent: int) -> None:
        now_s = time.monotonic()
        if now_s - self._told_at_s >= PROGRESS_S:
            self._told_at_s = now_s
            report_line(f"{sent} of {self._total} sent back")


def _document(survey: Survey, sent: int, *, dry_run: bool) -> Document:
    return {
        "dry_run": dry_run,
        "waiting": survey.waiting,
        "selected": survey.selected,
        "without_origin": survey.without_origin,
        "sent": sent,
        "kinds": [
            {"topic": topic, "reason": reason, "letters": count}
            for (topic, reason), count in survey.kinds.most_common()
        ],
    }


def _print(survey: Survey, sent: int, *, dry_run: bool) -> None:
    rows = [(topic, reason, count) for (topic, reason), count in survey.kinds.most_common()]
    print_table(("topic", "reason", "letters"), rows)
    lost = f"; {survey.without_origin} do not say where they came from"
    write_line(
        f"{survey.selected} of {survey.waiting} letters selected, "
        f"{'none sent: --dry-run' if dry_run else f'{sent} sent back'}"
        f"{lost if survey.without_origin else ''}"
    )
