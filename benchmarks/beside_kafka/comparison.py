"""Starts both sides, measures them by turns, and stops them.

Rule: both sides run all the time, so that each is measured beside the same idle other one.
"""

import argparse
import contextlib
from collections.abc import Iterator

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
    result_of,
)
from benchmarks.beside_kafka.sides import Side
from storage_engine.tools.table import report_line
from storage_engine.zookeeper.server.java import find_java

_WORKER = "benchmarks.beside_kafka.spark_worker"
SMALL_BATCHES = 24
"""The micro-batches of the small topics, with those to warm up."""


def _sizes(rows: int) -> dict[str, int]:
    """Return the rows of each topic, and the rows of the job that reads no topic."""
    return {
        SMALL: SMALL_BATCHES * SMALL_ROWS,
        MANY: SMALL_BATCHES * MANY_PARTITIONS_ROWS,
        LARGE: rows // 6 * 6,
        "batch-write": rows // 2,
    }


def compare(args: argparse.Namespace) -> list[Result]:
    """Return a result for each requested row."""
    check_proc()
    find_java()
    rows = [row for row in ROWS if not args.only or row.name in args.only]
    asked = {row.job for row in rows}
    with _both_up(args) as (ours, theirs):
        rounds = {
            job.name: _rounds_of(job, ours, theirs, args.rounds)
            for job in JOBS
            if job.name in asked
        }
    return [result_of(row, rounds[row.job]) for row in rows]


@contextlib.contextmanager
def _both_up(args: argparse.Namespace) -> Iterator[tuple[Side, Side]]:
    args.folder.mkdir(parents=True, exist_ok=True)
    connector = fetch_jars(args.folder, CONNECTOR)
    kafka = fetch_jars(args.folder, KAFKA)
    with contextlib.ExitStack() as stack:
        python = make_environment(args.folder)
        folder = stack.enter_context(scratch(args.dir))
        report_line("starting both clusters")
        ours = stack.enter_context(our_brokers(folder))
        theirs = stack.enter_context(their_brokers(folder, kafka))
        sides = []
        for name, brokers, jars in ((OURS, ours, []), (THEIRS, theirs, connector)):
            running = spark_of(name, brokers, python, _WORKER, args, jars)
            sides.append(Side(name, brokers, stack.enter_context(running), _sizes(args.rows)))
        yield sides[0], sides[1]


def _rounds_of(job: Job, ours: Side, theirs: Side, rounds: int) -> list[Round]:
    """Measure `rounds` rounds, after one to warm up, whose copies are read back and counted."""
    for side in (ours, theirs):
        if side.fill(job.topic):
            report_line(f"filled topic '{job.topic}' of {side.name}")
    measured: list[Round] = []
    for turn in range(rounds + 1):
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
