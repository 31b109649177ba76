"""Brings both sides up, lets them take turns, and stops all of it.

Rule: both sides are up all the time, so that each runs beside the same idle other one.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.arguments import scratch
from benchmarks.beside_kafka.clusters import our_brokers, spark_of, their_brokers
from benchmarks.beside_kafka.environment import make_environment
from benchmarks.beside_kafka.jars import CONNECTOR, KAFKA, fetch_jars
from benchmarks.beside_kafka.processor_time import check_proc
from benchmarks.beside_kafka.rows import (
    JOBS,
    LARGE,
    MANY,
    MANY_PARTITIONS_ROWS,
    OURS,
    ROWS,
    SMALL,
    SMALL_ROWS,
    THEIRS,
    Job,
    Measured,
    Result,
    Round,
    Row,
    result_of,
)
from benchmarks.beside_kafka.sides import Side
from storage_engine.tools.table import report_line
from storage_engine.zookeeper.java import find_java

_WORKER = "benchmarks.beside_kafka.spark_worker"
SMALL_BATCHES = 24
"""Micro-batches of the small topics, those that warm up included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured, and where."""

    rows: Sequence[Row]
    rounds: int
    large_rows: int
    cores: int
    cache: Path
    directory: Path | None
    conf: Mapping[str, str]
    """Settings of both Sparks."""

    @property
    def sizes(self) -> dict[str, int]:
        """Rows by topic, and those of the job that reads none."""
        return {
            SMALL: SMALL_BATCHES * SMALL_ROWS,
            MANY: SMALL_BATCHES * MANY_PARTITIONS_ROWS,
            LARGE: self.large_rows // 6 * 6,
            "batch-write": self.large_rows // 2,
        }


def compare(plan: Plan) -> list[Result]:
    """A result for each row that is asked for."""
    check_proc()
    find_java()
    asked = {row.job for row in plan.rows}
    with _both_up(plan) as (ours, theirs):
        rounds = {
            job.name: _rounds_of(job, ours, theirs, plan) for job in JOBS if job.name in asked
        }
    return [result_of(row, rounds[row.job]) for row in plan.rows]


@contextlib.contextmanager
def _both_up(plan: Plan) -> Iterator[tuple[Side, Side]]:
    plan.cache.mkdir(parents=True, exist_ok=True)
    connector = fetch_jars(plan.cache, CONNECTOR)
    kafka = fetch_jars(plan.cache, KAFKA)
    python = make_environment(plan.cache)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch(plan.directory))
        report_line("starting both clusters")
        ours = stack.enter_context(our_brokers(folder))
        theirs = stack.enter_context(their_brokers(folder, kafka))
        sides = []
        for name, brokers, jars in ((OURS, ours, []), (THEIRS, theirs, connector)):
            running = spark_of(
                name, brokers, python, _WORKER, cores=plan.cores, conf=plan.conf, jars=jars
            )
            sides.append(Side(name, brokers, stack.enter_context(running), plan.sizes))
        yield sides[0], sides[1]


def _rounds_of(job: Job, ours: Side, theirs: Side, plan: Plan) -> list[Round]:
    """Each first in every other round; the first round warms up, and its copies are counted."""
    for side in (ours, theirs):
        if side.fill(job.topic):
            report_line(f"filled topic '{job.topic}' of {side.name}")
    measured: list[Round] = []
    for turn in range(plan.rounds + 1):
        found: dict[str, Measured] = {}
        for side in (ours, theirs) if turn % 2 else (theirs, ours):
            found[side.name] = side.measure(job, is_counted=turn == 0)
        each = Round(headrace=found[OURS], kafka=found[THEIRS])
        if turn:
            measured.append(each)
        report_line(f"{job.name}, {_line(job, turn, each)}")
    return measured


def _line(job: Job, turn: int, each: Round) -> str:
    measure = next(row.measure for row in ROWS if row.job == job.name)
    unit = "ms" if measure == "time" else "rows/s"
    ours, theirs = each.headrace.figure(measure), each.kafka.figure(measure)
    when = f"round {turn}" if turn else "to warm up"
    return f"{when}: {OURS} {ours:,.0f} {unit}, {THEIRS} {theirs:,.0f} {unit}"
