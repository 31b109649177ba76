"""Starts the sides of a comparison, measures them by turns, and stops them.

Rule: all sides that are compared run all the time, so that each is measured beside the same idle
others.
"""

import argparse
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.arguments import scratch
from benchmarks.beside_kafka.clusters import spark_of, their_brokers
from benchmarks.beside_kafka.environment import make_environment
from benchmarks.beside_kafka.jars import CONNECTOR, KAFKA, fetch_jars
from benchmarks.beside_kafka.processor_time import check_proc
from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.support.brokers import Brokers
from benchmarks.typed.brokers import LinkedBrokers, linked_brokers
from benchmarks.typed.columns import ALL, TWO, share_where
from benchmarks.typed.fluss import running_fluss
from benchmarks.typed.reads import TableReader
from benchmarks.typed.rows import (
    ALL_COLUMNS,
    CLIENT,
    FILTERED,
    FLUSS,
    JSON,
    LINK,
    MEMORY,
    OPAQUE,
    OTHER,
    ROWS,
    SPARK_ALL,
    SPARK_TWO,
    SPARK_WRITE,
    TWO_COLUMNS,
    TYPED,
    Measured,
    Result,
    Round,
    result_of,
    stopped,
)
from benchmarks.typed.sparks import SparkSide
from benchmarks.typed.topics import PARTITIONS, fill_opaque, fill_typed, stored_bytes
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line
from storage_engine.zookeeper.server.java import find_java

TOPIC, OPAQUE_TOPIC = "rides", "opaque"
SHARE = 0.01
"""The share of the rows that the filter matches."""
_MEGABIT = 1_000_000
_WORKER = "benchmarks.typed.spark_worker"
_WITH_SPARK = (SPARK_TWO, SPARK_ALL, SPARK_WRITE)

Turns = Mapping[str, Callable[[], Measured]]
"""The measurement of each side's turn, by its name."""


def compare(args: argparse.Namespace) -> list[Result]:
    """Return a result for each requested row."""
    check_proc()
    find_java()
    rows = [row for row in ROWS if not args.only or row.name in args.only]
    if args.without_fluss:
        rows = [row for row in rows if row.group != FLUSS]
    groups = {row.group for row in rows}
    args.folder.mkdir(parents=True, exist_ok=True)
    rounds: dict[str, list[Round]] = {}
    reasons: dict[str, str] = {}
    with scratch(args.dir) as folder:
        report_line("starting Headrace")
        with linked_brokers(folder) as brokers:
            fill_typed(brokers.direct.bootstrap_servers, TOPIC, args.rows)
            report_line(f"filled topic '{TOPIC}'")
            if groups.intersection(_WITH_SPARK):
                rounds |= _with_spark(args, groups, folder, brokers.direct)
            if CLIENT in groups:
                rounds[CLIENT] = _of_client(args, brokers.direct)
            if LINK in groups:
                rounds[LINK] = _through_link(args, brokers)
            if FLUSS in groups:
                try:
                    rounds[FLUSS] = _beside_fluss(args, folder, brokers.direct)
                except (CommandError, HeadraceError, OSError) as error:
                    reasons[FLUSS] = f"not measured: {error}"
    return [
        stopped(row, reasons[row.group])
        if row.group in reasons
        else result_of(row, rounds[row.group])
        for row in rows
    ]


def _rounds(name: str, turns: Turns, rounds: int) -> list[Round]:
    """Measure `rounds` rounds, each side first in every other one, after a round to warm up."""
    measured: list[Round] = []
    for turn in range(rounds + 1):
        order = list(turns.items()) if turn % 2 else list(turns.items())[::-1]
        found = {each: work() for each, work in order}
        if turn:
            measured.append(found)
        when = f"round {turn}" if turn else "to warm up"
        told = ", ".join(f"{each} {found[each].figure('rate'):,.0f}" for each in turns)
        report_line(f"{name}, {when}, rows/s: {told}")
    return measured


def _with_spark(
    args: argparse.Namespace, groups: Collection[str], folder: Path, brokers: Brokers
) -> dict[str, list[Round]]:
    rounds: dict[str, list[Round]] = {}
    with _sparks(args, folder, brokers) as (ours, theirs):
        theirs.fill(TOPIC, args.rows)
        report_line(f"filled topic '{TOPIC}' of {THEIRS}")
        made = ours.digest_of_made(args.rows)
        for side in (ours, theirs):
            side.check_digest(TOPIC, made)
        for group, columns in ((SPARK_TWO, TWO), (SPARK_ALL, ALL)):
            if group in groups:
                rounds[group] = _rounds(
                    group, _reading(args, ours, theirs, group, columns), args.rounds
                )
        if SPARK_WRITE in groups:
            # A quarter: Spark holds them in memory, and `to_json` is slow.
            written = args.rows // 4
            turns: Turns = {
                TYPED: ours.writer(written),
                JSON: theirs.writer(written),
                MEMORY: lambda: ours.hold(written),
            }
            rounds[SPARK_WRITE] = _rounds(SPARK_WRITE, turns, args.rounds)
    return rounds


def _reading(
    args: argparse.Namespace, ours: SparkSide, theirs: SparkSide, group: str, columns: Sequence[str]
) -> Turns:
    turns = {
        TYPED: lambda: ours.read(TOPIC, args.rows, columns),
        JSON: lambda: theirs.read(TOPIC, args.rows, columns),
        MEMORY: lambda: ours.read_memory(args.rows, columns),
    }
    if group == SPARK_ALL:
        where, _ = share_where(SHARE, args.rows)
        turns[FILTERED] = lambda: ours.read(TOPIC, args.rows, columns, where)
    return turns


@contextlib.contextmanager
def _sparks(
    args: argparse.Namespace, folder: Path, brokers: Brokers
) -> Iterator[tuple[SparkSide, SparkSide]]:
    connector = fetch_jars(args.folder, CONNECTOR)
    kafka = fetch_jars(args.folder, KAFKA)
    python = make_environment(args.folder)
    with contextlib.ExitStack() as stack:
        report_line("starting Apache Kafka")
        theirs = stack.enter_context(their_brokers(folder, kafka))
        sides = []
        for name, each, jars in ((OURS, brokers, []), (THEIRS, theirs, connector)):
            running = spark_of(name, each, python, _WORKER, args, jars)
            sides.append(SparkSide(name, each, stack.enter_context(running)))
        yield sides[0], sides[1]


def _of_client(args: argparse.Namespace, brokers: Brokers) -> list[Round]:
    servers = brokers.bootstrap_servers
    value_bytes = round(stored_bytes(servers, TOPIC) / args.rows)
    fill_opaque(servers, OPAQUE_TOPIC, args.rows, value_bytes)
    report_line(f"filled topic '{OPAQUE_TOPIC}' with values of {value_bytes} B")
    reader = TableReader(brokers, PARTITIONS, args.rows)
    where, given = share_where(SHARE, args.rows)
    turns = {
        TWO_COLUMNS: lambda: reader.read(TOPIC, columns=TWO),
        ALL_COLUMNS: lambda: reader.read(TOPIC, columns=ALL),
        FILTERED: lambda: reader.read(TOPIC, columns=ALL, where=where, given=given),
        OPAQUE: lambda: reader.read(OPAQUE_TOPIC),
    }
    return _rounds(CLIENT, turns, args.rounds)


def _through_link(args: argparse.Namespace, brokers: LinkedBrokers) -> list[Round]:
    reader = TableReader(brokers.linked, PARTITIONS, args.rows)
    with brokers.link(args.link * _MEGABIT) as link:
        turns = {
            TWO_COLUMNS: lambda: reader.read(TOPIC, columns=TWO, count=link.sent),
            ALL_COLUMNS: lambda: reader.read(TOPIC, columns=ALL, count=link.sent),
        }
        return _rounds(LINK, turns, args.rounds)


def _beside_fluss(args: argparse.Namespace, folder: Path, brokers: Brokers) -> list[Round]:
    reader = TableReader(brokers, PARTITIONS, args.rows)
    with running_fluss(folder, args.folder) as fluss:
        fluss.fill(TOPIC, PARTITIONS, args.rows)
        report_line(f"filled table '{TOPIC}' of Apache Fluss")
        turns = {
            TYPED: lambda: reader.read(TOPIC, columns=TWO),
            OTHER: lambda: fluss.read(TOPIC, PARTITIONS, args.rows, TWO),
        }
        return _rounds(FLUSS, turns, args.rounds)
