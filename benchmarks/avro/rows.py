"""The rows of the table: what each measures, beside what, and its goal.

Rule: sides that are compared take turns, and are compared round by round, since other load on the
machine then weighs on both. The median of the ratios is reported, and their range.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.beside_kafka.processor_time import CpuTimes
from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.beside_kafka.sides_compared import COMPARED, figure_cells, ratio_of
from benchmarks.support.rounds import Cell, Goal, judged, rounded, spread

READ_ALL, READ_TWO, WRITE = "read-all", "read-two", "write"
START, GET = "registry-start", "registry-get"


class Row(NamedTuple):
    """A row of the table."""

    name: str
    what: str
    goal: Goal
    """The goal for the ratio of ours to theirs, or for our figure where there is no other."""


# fmt: off
ROWS = (
    Row(READ_ALL, "Spark reads all 20 columns from Avro, rows/s, beside from_avro on Apache Kafka",
        Goal(least=2)),
    Row(READ_TWO, "Spark reads 2 of 20, rows/s, beside the same", Goal(least=3)),
    Row(WRITE, "Spark writes 20 columns as Avro exactly once, rows/s, beside to_avro at least once",
        Goal(least=2)),
    Row(START, "a registry starts and has read all its schemas, s", Goal(most=3)),
    Row(GET, "a registry answers a schema by its id, p99, ms", Goal(most=5)),
)
# fmt: on
BY_NAME = {row.name: row for row in ROWS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One turn of a side."""

    rows: int
    time_s: float
    cpu: CpuTimes

    @property
    def rate(self) -> float:
        """The rows a second of time."""
        return self.rows / self.time_s

    @property
    def cpu_us(self) -> float:
        """The processor time for a row, in microseconds."""
        return self.cpu.all / self.rows * 1_000_000

    def __str__(self) -> str:
        parts = self.cpu._asdict().items()
        times = ", ".join(f"{name} {each / self.rows * 1_000_000:.2f}" for name, each in parts)
        return f"{self.rate:,.0f} rows/s (processor time for a row, us: {times})"

    def document(self) -> dict[str, float]:
        """Return the rate, and the seconds of the processor times."""
        times = {f"{name}_cpu_s": seconds for name, seconds in self.cpu._asdict().items()}
        return {name: rounded(value) for name, value in {"rate": self.rate, **times}.items()}


Round = Mapping[str, Measured]
"""A turn of each side, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A row with its figures: medians over the rounds, and the least and the most of them."""

    name: str
    what: str
    headrace: float
    headrace_spread: tuple[float, float]
    kafka: float | None = None
    kafka_spread: tuple[float, float] | None = None
    ratio: float | None = None
    ratio_spread: tuple[float, float] | None = None
    goal: str | None
    met: bool | None
    cpu_us: float | None = None
    """Processor time of Spark, brokers and registry for a row, or of a registry for a schema, in
    microseconds."""
    kafka_cpu_us: float | None = None
    cpu_ratio: float | None = None
    """The ratio of the processor times, which other programs disturb less."""
    rounds: Sequence[dict[str, dict[str, float]]] = ()


COLUMNS = (*COMPARED, "cpu, us each", "kafka's", "cpu ratio")


def compared(name: str, rounds: Sequence[Round]) -> Result:
    """Return the figures of a row that both sides have."""
    row = BY_NAME[name]
    ours, theirs = ([each[side] for each in rounds] for side in (OURS, THEIRS))
    rates, their_rates = ([each.rate for each in side] for side in (ours, theirs))
    cpu, their_cpu = ([each.cpu_us for each in side] for side in (ours, theirs))
    ratios = [one / max(other, 1e-9) for one, other in zip(cpu, their_cpu, strict=True)]
    return Result(
        name=name,
        what=row.what,
        headrace=rounded(statistics.median(rates)),
        headrace_spread=spread(rates),
        kafka=rounded(statistics.median(their_rates)),
        kafka_spread=spread(their_rates),
        **ratio_of(rates, their_rates, row.goal),
        cpu_us=rounded(statistics.median(cpu)),
        kafka_cpu_us=rounded(statistics.median(their_cpu)),
        cpu_ratio=rounded(statistics.median(ratios)),
        rounds=[{side: turn.document() for side, turn in each.items()} for each in rounds],
    )


def alone(name: str, figures: Sequence[float], cpu_us: Sequence[float]) -> Result:
    """Return a row that has no other side. `cpu_us`: of each round, for a schema."""
    row = BY_NAME[name]
    figure = rounded(statistics.median(figures))
    return Result(
        name=name,
        what=row.what,
        headrace=figure,
        headrace_spread=spread(figures),
        **judged(row.goal, figure),
        cpu_us=rounded(statistics.median(cpu_us)),
        rounds=[
            {OURS: {"figure": rounded(one), "cpu_us": rounded(other)}}
            for one, other in zip(figures, cpu_us, strict=True)
        ],
    )


def cells(result: Result) -> list[Cell]:
    """Return the cells of a line of the table."""
    _, ratio = figure_cells(result.ratio, result.ratio_spread)
    return [
        result.what,
        *figure_cells(result.headrace, result.headrace_spread),
        *figure_cells(result.kafka, result.kafka_spread),
        *(result.ratio, ratio, result.goal, result.met),
        *(result.cpu_us, result.kafka_cpu_us, result.cpu_ratio),
    ]
