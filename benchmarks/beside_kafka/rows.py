"""The rows of the table: what each measures, its goal, and how rounds become a row.

Rule: the two sides are compared round by round, since other load on the machine then weighs on
both. The median of the ratios is reported, and their range.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from benchmarks.beside_kafka.processor_time import CpuTimes
from benchmarks.beside_kafka.sides_compared import COMPARED, Compared, compared
from benchmarks.support.rounds import Cell, Goal, rounded

OURS = "headrace"
THEIRS = "kafka"

SMALL_ROWS = 10_000
MANY_PARTITIONS_ROWS = 1_000
COPIED_ROWS = 200_000
LARGE_ROWS = 1_000_000
"""Rows of a micro-batch."""


SMALL, MANY, LARGE = "small", "many", "large"
PARTITIONS = {SMALL: 6, MANY: 24, LARGE: 6}
WRITTEN_PARTITIONS = 6


class Job(NamedTuple):
    """The work that both sides do in a round."""

    name: str
    kind: str
    """"stream" and "read" read a topic, "write" writes rows of Spark's own."""
    topic: str = ""
    rows_per_batch: int = 0
    warm_up: int = 0
    """The number of micro-batches before the measured ones."""
    is_copied: bool = False
    """Whether rows go into a topic, not to Spark's sink `noop`."""


JOBS = (
    Job("micro-batch", "stream", SMALL, SMALL_ROWS, 4),
    Job("micro-batch-copy", "stream", SMALL, SMALL_ROWS, 4, is_copied=True),
    Job("many-partitions", "stream", MANY, MANY_PARTITIONS_ROWS, 4),
    Job("copy", "stream", LARGE, COPIED_ROWS, 2, is_copied=True),
    Job("stream-read", "stream", LARGE, LARGE_ROWS, 1),
    Job("batch-read", "read", LARGE),
    Job("batch-write", "write", is_copied=True),
)


class Row(NamedTuple):
    """A row of the table; several may come of one job."""

    name: str
    job: str
    what: str
    measure: str
    """"time": milliseconds of a micro-batch; "rate": rows a second; "cpu": processor time."""
    goal: Goal
    """The goal for the ratio of ours to theirs."""


_HALF = Goal(most=0.5)
ROWS = tuple(
    Row(name, "copy" if name == "cpu" else name, what, measure, goal)
    for name, what, measure, goal in (
        ("micro-batch", "micro-batch of 10,000 rows, 6 partitions, ms", "time", _HALF),
        ("micro-batch-copy", "the same copied into a topic, ms", "time", _HALF),
        ("many-partitions", "micro-batch of 1,000 rows, 24 partitions, ms", "time", _HALF),
        ("copy", "stream copied, 200,000 rows a batch, rows/s", "rate", Goal(least=2.5)),
        ("stream-read", "stream read, 1,000,000 rows a batch, rows/s", "rate", Goal(least=2.5)),
        ("batch-read", "batch read, rows/s", "rate", Goal(least=4)),
        ("batch-write", "batch write, rows/s", "rate", Goal(least=4.8)),
        ("cpu", "processor time of that copy, s per million rows", "cpu", _HALF),
    )
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
    """The measured batches, without those to warm up."""
    rows: int
    """The rows of the whole job, also of its warm-up: the processor time is of all of it."""
    cpu: CpuTimes

    def figure(self, measure: str) -> float:
        """Return the figure of a row with this measure."""
        if measure == "cpu":
            return self.cpu.all / self.rows * 1_000_000
        if measure == "time":
            return statistics.median(batch.time_ms for batch in self.batches)
        time_ms = sum(batch.time_ms for batch in self.batches)
        return sum(batch.rows for batch in self.batches) / time_ms * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of a job, on both sides."""

    headrace: Measured
    kafka: Measured


class RoundFigures(TypedDict):
    """The figure of each side, and its processor time in seconds by the fields of CpuTimes."""

    headrace: float
    kafka: float
    headrace_cpu: dict[str, float]
    kafka_cpu: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Compared):
    """A row with its figures."""

    cpu_ratio: float
    """The ratio of processor times of Spark and brokers, which other programs disturb less."""
    rounds: list[RoundFigures]


COLUMNS = (*COMPARED, "cpu ratio")


def result_of(row: Row, rounds: Sequence[Round]) -> Result:
    """Return the figures of a row."""
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


def cells(result: Result) -> list[Cell]:
    """Return the cells of a line of the table."""
    return [*result.cells(), result.cpu_ratio]


def _seconds(cpu: CpuTimes) -> dict[str, float]:
    return {name: rounded(seconds) for name, seconds in cpu._asdict().items()}
