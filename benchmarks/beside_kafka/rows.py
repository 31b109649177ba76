"""The rows of the table: what each measures, its goal, and how rounds become a row.

Rule: the two sides are compared round by round, since the machine's mood then weighs on both. The
median of the ratios is told, and how far they spread.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.beside_kafka.processor_time import CpuTimes
from benchmarks.beside_kafka.sides_compared import COMPARED, Compared, compared
from benchmarks.support.rounds import Goal, rounded

OURS = "headrace"
THEIRS = "kafka"

SMALL_ROWS = 10_000
MANY_PARTITIONS_ROWS = 1_000
COPIED_ROWS = 200_000
LARGE_ROWS = 1_000_000
"""Rows of a micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What both sides do in a round."""

    name: str
    kind: str
    """"stream" and "read" read a topic, "write" writes rows of Spark's own."""
    topic: str = ""
    rows_per_batch: int = 0
    is_copied: bool = False
    """Into a topic, not to the sink that does nothing."""
    warm_up: int = 0
    """Micro-batches before those that are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table; several may come of one job."""

    name: str
    job: str
    what: str
    measure: str
    """"time": milliseconds of a micro-batch; "rate": rows a second; "cpu": processor time."""
    goal: Goal
    """Of the ratio of ours to theirs."""


SMALL, MANY, LARGE = "small", "many", "large"
PARTITIONS = {SMALL: 6, MANY: 24, LARGE: 6}
WRITTEN_PARTITIONS = 6

JOBS = (
    Job(name="micro-batch", kind="stream", topic=SMALL, rows_per_batch=SMALL_ROWS, warm_up=4),
    Job(
        name="micro-batch-copy",
        kind="stream",
        topic=SMALL,
        rows_per_batch=SMALL_ROWS,
        warm_up=4,
        is_copied=True,
    ),
    Job(
        name="many-partitions",
        kind="stream",
        topic=MANY,
        rows_per_batch=MANY_PARTITIONS_ROWS,
        warm_up=4,
    ),
    Job(
        name="copy",
        kind="stream",
        topic=LARGE,
        rows_per_batch=COPIED_ROWS,
        warm_up=2,
        is_copied=True,
    ),
    Job(name="stream-read", kind="stream", topic=LARGE, rows_per_batch=LARGE_ROWS, warm_up=1),
    Job(name="batch-read", kind="read", topic=LARGE),
    Job(name="batch-write", kind="write", is_copied=True),
)

ROWS = (
    Row(
        name="micro-batch",
        job="micro-batch",
        what="micro-batch of 10,000 rows, 6 partitions, ms",
        measure="time",
        goal=Goal(most=0.5),
    ),
    Row(
        name="micro-batch-copy",
        job="micro-batch-copy",
        what="the same copied into a topic, ms",
        measure="time",
        goal=Goal(most=0.5),
    ),
    Row(
        name="many-partitions",
        job="many-partitions",
        what="micro-batch of 1,000 rows, 24 partitions, ms",
        measure="time",
        goal=Goal(most=0.5),
    ),
    Row(
        name="copy",
        job="copy",
        what="stream copied, 200,000 rows a batch, rows/s",
        measure="rate",
        goal=Goal(least=2.5),
    ),
    Row(
        name="stream-read",
        job="stream-read",
        what="stream read, 1,000,000 rows a batch, rows/s",
        measure="rate",
        goal=Goal(least=2.5),
    ),
    Row(
        name="batch-read",
        job="batch-read",
        what="batch read, rows/s",
        measure="rate",
        goal=Goal(least=4),
    ),
    Row(
        name="batch-write",
        job="batch-write",
        what="batch write, rows/s",
        measure="rate",
        goal=Goal(least=4.8),
    ),
    Row(
        name="cpu",
        job="copy",
        what="processor time of that copy, s per million rows",
        measure="cpu",
        goal=Goal(most=0.5),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A micro-batch, or a whole batch job."""

    rows: int
    time_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One round of a job on one side."""

    batches: Sequence[Batch]
    """Those that are measured."""
    rows: int
    """Of the whole job, also of what warmed it up: the processor time is of all of it."""
    cpu: CpuTimes

    def figure(self, measure: str) -> float:
        """As a row of this measure tells it."""
        if measure == "cpu":
            return self.cpu.all / self.rows * 1_000_000
        if measure == "time":
            return statistics.median(batch.time_ms for batch in self.batches)
        time_ms = sum(batch.time_ms for batch in self.batches)
        return sum(batch.rows for batch in self.batches) / time_ms * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Both sides, one after the other."""

    headrace: Measured
    kafka: Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Compared):
    """A row with its figures."""

    cpu_ratio: float
    """Processor time of Spark and brokers, ours to theirs: other programs disturb it less."""
    rounds: list[dict[str, Any]]
    """The figures and the processor time of each, in seconds by whose it is."""


COLUMNS = (*COMPARED, "cpu ratio")


def result_of(row: Row, rounds: Sequence[Round]) -> Result:
    """The figures of a row."""
    ours = [each.headrace.figure(row.measure) for each in rounds]
    theirs = [each.kafka.figure(row.measure) for each in rounds]
    cpu = [each.headrace.figure("cpu") / each.kafka.figure("cpu") for each in rounds]
    return Result(
        name=row.name,
        what=row.what,
        **compared(ours, theirs, row.goal),
        cpu_ratio=rounded(statistics.median(cpu)),
        rounds=[
            {
                "headrace": rounded(one),
                "kafka": rounded(other),
                "headrace_cpu": _seconds(each.headrace.cpu),
                "kafka_cpu": _seconds(each.kafka.cpu),
            }
            for one, other, each in zip(ours, theirs, rounds, strict=True)
        ],
    )


def cells(result: Result) -> list[object]:
    """Those of a line of the table."""
    return [*result.cells(), result.cpu_ratio]


def _seconds(cpu: CpuTimes) -> dict[str, float]:
    return {name: rounded(seconds) for name, seconds in cpu._asdict().items()}
