"""Brings up what is compared, lets it take turns, and stops all of it.

Rule: all that is compared with one another is up all the time, so that each runs beside the same
idle others.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    SPARK_ALL,
    SPARK_TWO,
    SPARK_WRITE,
    TWO_COLUMNS,
    TYPED,
    Measured,
    Result,
    Round,
    Row,
    result_of,
    stopped,
)
from benchmarks.typed.sparks import SparkSide
from benchmarks.typed.topics import PARTITIONS, fill_opaque, fill_typed, stored_bytes
from storage_engine.core.errors import HeadraceError
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line
from storage_engine.zookeeper.java import find_java

TOPIC, OPAQUE_TOPIC = "rides", "opaque"
SHARE = 0.01
"""Of the rows, which a filter lets through."""
_WORKER = "benchmarks.typed.spark_worker"
_WITH_SPARK = (SPARK_TWO, SPARK_ALL, SPARK_WRITE)

Turns = Mapping[str, Callable[[], Measured]]
"""What each does in its turn, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured, and where."""

    rows: Sequence[Row]
    rounds: int
    row_count: int
    cores: int
    bits_per_second: int
    cache: Path
    directory: Path | None
    conf: Mapping[str, str]
    """Settings of both Sparks."""

    @property
    def groups(self) -> set[str]:
        return {row.group for row in self.rows}

    @property
    def written_rows(self) -> int:
        """A quarter: Spark holds them in memory, and `to_json` is slow."""
        return self.row_count // 4


def compare(plan: Plan) -> list[Result]:
    """A result for each row that is asked for."""
    check_proc()
    find_java()
    plan.cache.mkdir(parents=True, exist_ok=True)
    rounds: dict[str, list[Round]] = {}
    reasons: dict[str, str] = {}
    with scratch(plan.directory) as name:
        folder = name
        report_line("starting Headrace")
        with linked_brokers(folder) as brokers:
            fill_typed(brokers.direct.bootstrap_servers, TOPIC, plan.row_count)
            report_line(f"filled topic '{TOPIC}'")
            if plan.groups.intersection(_WITH_SPARK):
                rounds |= _with_spark(plan, folder, brokers.direct)
            if CLIENT in plan.groups:
                rounds[CLIENT] = _of_client(plan, brokers.direct)
            if LINK in plan.groups:
                rounds[LINK] = _through_link(plan, brokers)
            if FLUSS in plan.groups:
                try:
                    rounds[FLUSS] = _beside_fluss(plan, folder, brokers.direct)
                except (CommandError, HeadraceError, OSError) as error:
                    reasons[FLUSS] = f"not measured: {error}"
    return [
        stopped(row, reasons[row.group])
        if row.group in reasons
        else result_of(row, rounds[row.group])
        for row in plan.rows
    ]


def _rounds(name: str, turns: Turns, rounds: int) -> list[Round]:
    """Each first in every other round; the first round warms up."""
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


def _with_spark(plan: Plan, folder: Path, brokers: Brokers) -> dict[str, list[Round]]:
    rounds: dict[str, list[Round]] = {}
    with _sparks(plan, folder, brokers) as (ours, theirs):
        theirs.fill(TOPIC, plan.row_count)
        report_line(f"filled topic '{TOPIC}' of {THEIRS}")
        made = ours.digest_of_made(plan.row_count)
        for side in (ours, theirs):
            side.check_digest(TOPIC, made)
        for group, columns in ((SPARK_TWO, TWO), (SPARK_ALL, ALL)):
            if group in plan.groups:
                rounds[group] = _rounds(
                    group, _reading(plan, ours, theirs, group, columns), plan.rounds
                )
        if SPARK_WRITE in plan.groups:
            turns: Turns = {
                TYPED: ours.writer(plan.written_rows),
                JSON: theirs.writer(plan.written_rows),
                MEMORY: lambda: ours.hold(plan.written_rows),
            }
            rounds[SPARK_WRITE] = _rounds(SPARK_WRITE, turns, plan.rounds)
    return rounds


def _reading(
    plan: Plan, ours: SparkSide, theirs: SparkSide, group: str, columns: Sequence[str]
) -> Turns:
    turns = {
        TYPED: lambda: ours.read(TOPIC, plan.row_count, columns),
        JSON: lambda: theirs.read(TOPIC, plan.row_count, columns),
        MEMORY: lambda: ours.read_memory(plan.row_count, columns),
    }
    if group == SPARK_ALL:
        where, _ = share_where(SHARE, plan.row_count)
        turns[FILTERED] = lambda: ours.read(TOPIC, plan.row_count, columns, where)
    return turns


@contextlib.contextmanager
def _sparks(plan: Plan, folder: Path, brokers: Brokers) -> Iterator[tuple[SparkSide, SparkSide]]:
    connector = fetch_jars(plan.cache, CONNECTOR)
    kafka = fetch_jars(plan.cache, KAFKA)
    python = make_environment(plan.cache)
    with contextlib.ExitStack() as stack:
        report_line("starting Apache Kafka")
        theirs = stack.enter_context(their_brokers(folder, kafka))
        sides = []
        for name, each, jars in ((OURS, brokers, []), (THEIRS, theirs, connector)):
            running = spark_of(
                name, each, python, _WORKER, cores=plan.cores, conf=plan.conf, jars=jars
            )
            sides.append(SparkSide(name, each, stack.enter_context(running)))
        yield sides[0], sides[1]


def _of_client(plan: Plan, brokers: Brokers) -> list[Round]:
    servers = brokers.bootstrap_servers
    value_bytes = round(stored_bytes(servers, TOPIC) / plan.row_count)
    fill_opaque(servers, OPAQUE_TOPIC, plan.row_count, value_bytes)
    report_line(f"filled topic '{OPAQUE_TOPIC}' with values of {value_bytes} B")
    reader = TableReader(brokers, PARTITIONS, plan.row_count)
    where, given = share_where(SHARE, plan.row_count)
    turns = {
        TWO_COLUMNS: lambda: reader.read(TOPIC, columns=TWO),
        ALL_COLUMNS: lambda: reader.read(TOPIC, columns=ALL),
        FILTERED: lambda: reader.read(TOPIC, columns=ALL, where=where, given=given),
        OPAQUE: lambda: reader.read(OPAQUE_TOPIC),
    }
    return _rounds(CLIENT, turns, plan.rounds)


def _through_link(plan: Plan, brokers: LinkedBrokers) -> list[Round]:
    reader = TableReader(brokers.linked, PARTITIONS, plan.row_count)
    with brokers.link(plan.bits_per_second) as link:
        turns = {
            TWO_COLUMNS: lambda: reader.read(TOPIC, columns=TWO, count=link.sent),
            ALL_COLUMNS: lambda: reader.read(TOPIC, columns=ALL, count=link.sent),
        }
        return _rounds(LINK, turns, plan.rounds)


def _beside_fluss(plan: Plan, folder: Path, brokers: Brokers) -> list[Round]:
    reader = TableReader(brokers, PARTITIONS, plan.row_count)
    with running_fluss(folder, plan.cache) as fluss:
        fluss.fill(TOPIC, PARTITIONS, plan.row_count)
        report_line(f"filled table '{TOPIC}' of Apache Fluss")
        turns = {
            TYPED: lambda: reader.read(TOPIC, columns=TWO),
            OTHER: lambda: fluss.read(TOPIC, PARTITIONS, plan.row_count, TWO),
        }
        return _rounds(FLUSS, turns, plan.rounds)
