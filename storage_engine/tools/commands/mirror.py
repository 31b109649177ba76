r"""Copy topics of one or more clusters into another cluster, each record exactly once.

Each record keeps its partition, key, value, headers and timestamp, and its order within the
partition; its offset is new. The mirror commits records and its own position in one transaction.
When a mirror that was killed is started again with the same --name, readers with read_committed
find no record missing and none twice. Topics are created with the partitions and settings of the
source, and get more partitions when the source does. A second mirror of the same name stops the
first.

A typed topic is copied with its schema, later versions included. Where the target's topic has no
schema, its rows become JSON records.

With --groups, the mirror also translates the committed offsets of consumer groups and commits them
in the target, so that members can continue there. A translated offset never skips a record that the
group has not read. The mirror changes no group that has members in the target, and moves no offset
back.

The mirror runs until Ctrl-C, and prints its progress. LAG is counted in offsets.

examples:
  headrace mirror --source east:9092 --target west:9092 --topics 'orders|clicks-.*'
  headrace mirror --source east:9092 --target west:9092 --topics '.*' --groups billing --exit-at-end
  headrace mirror --name to-hq --source eu=eu:9092 --source us=us:9092 --target hq:9092 \
      --topics 'orders' --target-topic '{source}.{topic}' --json
"""

import argparse
import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from storage_engine.client.admin.topics import BROKER_DEFAULT
from storage_engine.mirror.groups import DEADLINE_MS as GROUPS_DEADLINE_MS
from storage_engine.mirror.groups import MirroredGroups, SyncedGroup
from storage_engine.mirror.mirror import REFRESH_MS, Mirror, MirrorConfig, TopicLag
from storage_engine.mirror.plan import SAME_NAME, TopicSelection
from storage_engine.mirror.source import DEADLINE_MS
from storage_engine.tools.arguments import (
    BOOTSTRAP_HELP,
    CONFIG_HELP,
    add_json,
    positive_integer,
    positive_seconds,
)
from storage_engine.tools.client_settings import connect
from storage_engine.tools.errors import UsageError
from storage_engine.tools.local.signals import signals_interrupt
from storage_engine.tools.table import print_table, report_line, write_line

DEFAULT_NAME = "mirror"

_SOURCE = re.compile(r"(?:([A-Za-z0-9_.-]+)=)?([^=]+)")

_MOST_S = REFRESH_MS // 1000

_WAIT_MS = 100
"""How long one step waits for records of the sources."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace mirror`."""
    _add_clusters(parser)
    _add_topics(parser)
    _add_ways_of_running(parser)
    add_json(parser)


def _add_clusters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        action="append",
        required=True,
        type=source,
        metavar="[NAME=]HOST:PORT",
        help=f"cluster to copy from: {BOOTSTRAP_HELP}; repeatable, and then each cluster needs a "
        "NAME, under which the mirror stores its position (default: source)",
    )
    parser.add_argument(
        "--target",
        required=True,
        metavar="HOST:PORT",
        help="cluster to copy into: brokers to connect to first, as HOST:PORT[,HOST:PORT…]",
    )
    parser.add_argument(
        "--source-config",
        action="append",
        default=[],
        type=source_config,
        metavar="[NAME=]FILE",
        help=f"{CONFIG_HELP}, for the source of that NAME, or for all sources; repeatable",
    )
    parser.add_argument(
        "--target-config",
        type=Path,
        metavar="FILE",
        help="properties file with the settings of the connection to the target (default: a "
        "connection without TLS and without a log-in)",
    )
    parser.add_argument(
        "--name",
        default=DEFAULT_NAME,
        help="name of the mirror; it stores its position in the topic __mirror_NAME of the target, "
        f"and only one mirror of a name can run at a time (default: {DEFAULT_NAME})",
    )


def _add_topics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topics",
        required=True,
        type=regex,
        metavar="REGEX",
        help="copy the topics whose whole name matches; new topics are found within seconds",
    )
    parser.add_argument(
        "--exclude",
        type=regex,
        metavar="REGEX",
        help="do not copy the topics whose whole name matches (default: none)",
    )
    parser.add_argument(
        "--target-topic",
        default=SAME_NAME,
        metavar="FORMAT",
        help="name of a topic in the target; {topic} stands for its name in the source and "
        "{source} for the NAME of the source (default: {topic})",
    )
    parser.add_argument(
        "--groups",
        type=regex,
        metavar="REGEX",
        help="translate the committed offsets of the groups whose whole name matches (default: "
        "none)",
    )
    parser.add_argument(
        "--replication-factor",
        type=positive_integer,
        default=BROKER_DEFAULT,
        metavar="N",
        help="number of replicas of the topics that the mirror creates (default: the target's "
        "default.replication.factor)",
    )


def _add_ways_of_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--commit-interval",
        type=positive_seconds,
        default=1.0,
        metavar="SECONDS",
        help="commit this often; records become visible to read_committed readers when they are "
        f"committed (default 1, at most {_MOST_S})",
    )
    parser.add_argument(
        "--exit-at-end",
        action="store_true",
        help="stop when all records that the sources held at the start are copied",
    )
    parser.add_argument(
        "--interval",
        type=positive_seconds,
        default=5.0,
        metavar="SECONDS",
        help="print progress, and translate the offsets of groups, this often (default 5)",
    )


def source(text: str) -> tuple[str, str]:
    """Return the name and the bootstrap servers in [NAME=]HOST:PORT."""
    found = _SOURCE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form [NAME=]HOST:PORT")
    return found[1] or "source", found[2]


def source_config(text: str) -> tuple[str | None, Path]:
    """Return the name and the file in [NAME=]FILE; None: for all sources."""
    name, equals, path = text.rpartition("=")
    if equals and re.fullmatch(r"[A-Za-z0-9_.-]+", name) and path:
        return name, Path(path)
    return None, Path(text)


def configs_of(
    sources: Mapping[str, str], given: Sequence[tuple[str | None, Path]]
) -> dict[str, Path | None]:
    """The file of each source; UsageError for a name that no source has, and for one twice."""
    named: dict[str | None, Path] = {}
    for name, path in given:
        if name is not None and name not in sources:
            raise UsageError(f"--source-config {name}=…: no source has the name '{name}'")
        if name in named:
            raise UsageError(f"--source-config is given twice for {name or 'all sources'}")
        named[name] = path
    return {name: named.get(name, named.get(None)) for name in sources}


def regex(text: str) -> re.Pattern[str]:
    """Return the compiled regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a regular expression: {error}") from None


def run(args: argparse.Namespace) -> int:
    """Run `headrace mirror`."""
    sources = dict(args.source)
    if len(sources) < len(args.source):
        raise UsageError("two sources have the same name; give each its own, as NAME=HOST:PORT")
    if args.commit_interval > _MOST_S:
        raise UsageError(
            f"--commit-interval is {args.commit_interval:g}; it must be at most {_MOST_S} s"
        )
    configs = configs_of(sources, args.source_config)
    config = MirrorConfig(
        name=args.name,
        selection=TopicSelection(
            include=args.topics, exclude=args.exclude, target_name=args.target_topic
        ),
        replication_factor=args.replication_factor,
        commit_interval_ms=round(args.commit_interval * 1000),
    )
    with ExitStack() as stack:
        stack.enter_context(signals_interrupt())
        target = stack.enter_context(connect(args.target, args.target_config))
        clusters = {
            name: stack.enter_context(connect(servers, configs[name], deadline_ms=DEADLINE_MS))
            for name, servers in sources.items()
        }
        mirror = stack.enter_context(Mirror(target, clusters, config, report_line))
        groups = None
        if args.groups is not None:
            groups = MirroredGroups(
                mirror,
                args.groups,
                connect(args.target, args.target_config, deadline_ms=GROUPS_DEADLINE_MS),
                {
                    name: connect(servers, configs[name], deadline_ms=GROUPS_DEADLINE_MS)
                    for name, servers in sources.items()
                },
                report_line,
            )
            stack.callback(groups.close)
        try:
            mirror.start()
            _run(mirror, groups, _Report(mirror, as_json=args.json), args)
        except KeyboardInterrupt:
            return 0
    return 0


def _run(
    mirror: Mirror, groups: MirroredGroups | None, report: "_Report", args: argparse.Namespace
) -> None:
    ends = mirror.ends() if args.exit_at_end else None
    due_s = time.monotonic() + args.interval
    while ends is None or not mirror.reaches(ends):
        is_due = time.monotonic() >= due_s
        # Lags and groups are asked of brokers that may be away, one after the other: a transaction
        # that is open meanwhile would end with its time limit, and the mirror with it.
        mirror.step(_WAIT_MS, commits=is_due)
        if is_due:
            report.show([] if groups is None else groups.sync())
            due_s = time.monotonic() + args.interval
    report.show([] if groups is None else groups.sync())


class _Report:
    """The report that is printed every few seconds."""

    def __init__(self, mirror: Mirror, *, as_json: bool) -> None:
        self._mirror = mirror
        self._as_json = as_json
        self._reported_s = time.monotonic()
        self._reported_records = 0

    def show(self, moved: Sequence[SyncedGroup]) -> None:
        """Print one document in a line, or a table."""
        lags = self._mirror.lags()
        now_s = time.monotonic()
        records = sum(row.copied for row in lags)
        rate = (records - self._reported_records) / max(now_s - self._reported_s, 1e-3)
        self._reported_s, self._reported_records = now_s, records
        if self._as_json:
            write_line(self._document(lags, moved, rate))
            return
        print_table(TopicLag._fields, lags)
        groups = sum(each.partitions for each in moved)
        skipped = self._mirror.skipped
        write_line(
            f"{rate:.0f} records/s"
            + (f", offsets of groups moved on: {groups}" if groups else "")
            + (f", deleted before they were copied: {skipped}" if skipped else "")
        )

    def _document(self, lags: Sequence[TopicLag], moved: Sequence[SyncedGroup], rate: float) -> str:
        return json.dumps(
            {
                "topics": [row._asdict() for row in lags],
                "records_per_s": round(rate, 1),
                "lag": sum(row.lag for row in lags),
                "skipped": self._mirror.skipped,
                "groups": [each._asdict() for each in moved],
            }
        )
