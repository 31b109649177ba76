"""Show a cluster in the terminal: rates of brokers and topics, lag of groups, sinks, and problems.
Ctrl-C ends the command.

The command reads the brokers' metrics (metrics.listener), which 'headrace up' turns on. It draws
its tables in place with the library Rich (pip install 'headrace[console]').

examples:
  headrace top --dir ./cluster
  headrace top --metrics http://127.0.0.1:19092/metrics --metrics http://127.0.0.1:19093/metrics
  headrace top --dir ./cluster --once
  headrace top --dir ./cluster --json
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace_console.top.frames import BrokerLine, Frame, frame_of
from headrace_console.top.readings import BrokerReading, read_all
from storage_engine.core.printable import printable
from storage_engine.tools.arguments import add_json
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.local import cluster_file
from storage_engine.tools.local.signals import signals_interrupt
from storage_engine.tools.table import print_json

if TYPE_CHECKING:
    from rich.console import Console, Group, JustifyMethod
    from rich.table import Table
    from rich.text import Text

DEFAULT_INTERVAL_S = 2.0
WIDE = 100
"""The width of a terminal, in columns, from which on all columns of brokers are shown."""

FIRST_PAUSE_S = 1.1
"""The pause between the readings of `--once` and `--json`: brokers cache their text for 1 s."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace top`."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--dir", type=Path, metavar="DIR", help="directory of a local cluster")
    where.add_argument(
        "--metrics",
        action="append",
        metavar="URL",
        help="address of a broker's metrics, http://HOST:PORT/metrics; give it for each broker",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=DEFAULT_INTERVAL_S,
        metavar="SECONDS",
        help="seconds from one reading of the metrics to the next, 1 or more "
        f"(default: {DEFAULT_INTERVAL_S:g})",
    )
    parser.add_argument("--once", action="store_true", help="print the tables once and end")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run `headrace top`."""
    if not args.interval >= 1:
        raise UsageError(f"--interval {args.interval:g} is too short; give 1 or more")
    if args.json or args.once:
        before = read_all(_urls(args))
        time.sleep(FIRST_PAUSE_S)
        frame = frame_of(before, read_all(_urls(args)))
        if args.json:
            print_json(asdict(frame))
        else:
            console = _console()
            console.print(drawn(frame, console.width))
        return 0
    with signals_interrupt():
        return _show(args)


def _urls(args: argparse.Namespace) -> dict[str, str]:
    """Return the addresses by broker names; in a cluster's directory they may change."""
    if args.metrics:
        for url in args.metrics:
            parts = urlsplit(url)
            if parts.scheme != "http" or not parts.hostname:
                raise UsageError(f"--metrics '{url}' is not of the form http://HOST:PORT/metrics")
        return {urlsplit(url).netloc: url for url in args.metrics}
    brokers = cluster_file.read(args.dir).brokers
    urls = {str(entry.id): entry.metrics_url for entry in brokers if entry.metrics_url}
    if not urls:
        raise CommandError(
            f"the brokers of '{args.dir}' serve no metrics; remove metrics.listener from their"
            " server.properties and start them again with 'headrace up'"
        )
    return urls


def _show(args: argparse.Namespace) -> int:
    console = _console()
    from rich.live import Live

    before: Sequence[BrokerReading] = ()
    try:
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                begun_s = time.monotonic()
                now = read_all(_urls(args))
                live.update(drawn(frame_of(before, now), console.width), refresh=True)
                before = now
                time.sleep(max(0.2, args.interval - (time.monotonic() - begun_s)))
    except KeyboardInterrupt:
        return 0


def _console() -> "Console":
    try:
        from rich.console import Console
    except ImportError:
        raise CommandError(
            "headrace top needs Rich, which is not installed: pip install 'headrace[console]';"
            " --json works without it"
        ) from None
    return Console(highlight=False, soft_wrap=False)


def drawn(frame: Frame, width: int = WIDE) -> "Group":
    """Return a frame's tables, with the columns that a terminal of that width has room for."""
    from rich.console import Group
    from rich.text import Text

    problems = [Text(f"! {printable(problem)}", style="bold red") for problem in frame.problems]
    return Group(
        *(problems or [Text("nothing is wrong", style="green")]),
        _brokers(frame.brokers, is_wide=width >= WIDE),
        _table(
            "topics",
            ("topic", "in/s", "out/s", "records/s", "size"),
            [
                (
                    line.topic,
                    _size(line.in_bytes_s),
                    _size(line.out_bytes_s),
                    _count(line.records_s),
                    _size(line.size_bytes),
                )
                for line in frame.topics
            ],
        ),
        _table(
            "groups",
            ("group", "topic", "lag", "behind"),
            [
                (
                    line.group,
                    line.topic,
                    _count(line.lag),
                    "-" if line.lag_s is None else f"{line.lag_s:.0f} s",
                )
                for line in frame.groups
            ],
        ),
        _table(
            "sinks of Spark",
            ("sink", "open members", "under way", "last committed"),
            [
                (
                    line.sink,
                    line.open_members,
                    line.waiting,
                    "-" if line.last_batch is None else line.last_batch,
                )
                for line in frame.sinks
            ],
        ),
    )


def _brokers(lines: Sequence[BrokerLine], *, is_wide: bool) -> "Table | Text":
    columns = ["broker", "in/s", "out/s", "records/s", "leaders", "busy", "free"]
    if is_wide:
        columns += ["requests/s", "replicas", "longest turn", "memory"]
    rows = []
    for line in lines:
        if line.problem is not None:
            continue
        row: list[str | int] = [
            f"{line.broker} *" if line.is_controller else line.broker,
            _size(line.in_bytes_s),
            _size(line.out_bytes_s),
            _count(line.records_s),
            line.leaders,
            f"{line.busy:.0%}",
            _size(line.free_bytes),
        ]
        if is_wide:
            row += [
                _count(line.requests_s),
                line.replicas,
                f"{line.longest_turn_ms:.0f} ms",
                _size(line.memory_bytes),
            ]
        rows.append(row)
    return _table("brokers (* controller)", columns, rows)


def _table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str | int]]
) -> "Table | Text":
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return Text("")
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        justify: JustifyMethod = "left" if number == 0 or column == "topic" else "right"
        table.add_column(column, justify=justify, no_wrap=True, min_width=6)
    for row in rows:
        # Names come from clients: as Text they are no markup.
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    return table


def _size(value: float | None) -> str:
    if value is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def _count(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
