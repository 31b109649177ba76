"""The rows of the table: what each measures, beside what, and its goal.

Rule: whatever is compared takes turns, and is compared round by round, since the machine's mood
then weighs on both. The median of the ratios is told, and how far they spread.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.support.rounds import Goal, rounded, short, spread, spread_text

SPARK_TWO, SPARK_ALL, SPARK_WRITE = "spark-two", "spark-all", "spark-write"
CLIENT, LINK, FLUSS = "client", "link", "fluss"
"""What is measured together, by turns."""

TYPED, JSON, MEMORY, FILTERED = "typed", "json", "memory", "filtered"
TWO_COLUMNS, ALL_COLUMNS, OPAQUE, OTHER = "two", "all", "opaque", "fluss"
"""Those who take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table; several may come of one group."""

    name: str
    what: str
    group: str
    measured: str
    beside: str
    measure: str
    """"rate": rows a second; "sent": bytes that the brokers sent for a row; "brokers": their
    processor time, in seconds for a million rows."""
    goal: Goal | None = None
    """Of the ratio of the first to the second."""


ROWS = (
    Row(
        name="spark-two",
        what="Spark reads 2 of 20 columns, rows/s, beside from_json on Apache Kafka",
        group=SPARK_TWO,
        measured=TYPED,
        beside=JSON,
        measure="rate",
        goal=Goal(least=10),
    ),
    Row(
        name="spark-two-memory",
        what="the same beside a source that has these rows in memory (instead of the first)",
        group=SPARK_TWO,
        measured=TYPED,
        beside=MEMORY,
        measure="rate",
        goal=Goal(least=0.8),
    ),
    Row(
        name="spark-all",
        what="Spark reads all 20, rows/s, beside from_json on Apache Kafka",
        group=SPARK_ALL,
        measured=TYPED,
        beside=JSON,
        measure="rate",
        goal=Goal(least=5),
    ),
    Row(
        name="spark-all-memory",
        what="the same beside a source that has these rows in memory",
        group=SPARK_ALL,
        measured=TYPED,
        beside=MEMORY,
        measure="rate",
    ),
    Row(
        name="spark-write",
        what="Spark writes 20 columns exactly once, rows/s, beside to_json at least once",
        group=SPARK_WRITE,
        measured=TYPED,
        beside=JSON,
        measure="rate",
        goal=Goal(least=8),
    ),
    Row(
        name="spark-write-memory",
        what="the same beside a sink in Python that holds the rows",
        group=SPARK_WRITE,
        measured=TYPED,
        beside=MEMORY,
        measure="rate",
    ),
    Row(
        name="sent",
        what="bytes that brokers send for a row, 2 of 20 columns beside all",
        group=LINK,
        measured=TWO_COLUMNS,
        beside=ALL_COLUMNS,
        measure="sent",
        goal=Goal(most=0.15),
    ),
    Row(
        name="brokers",
        what="the brokers' processor time, s per million rows, 2 of 20 columns beside all",
        group=CLIENT,
        measured=TWO_COLUMNS,
        beside=ALL_COLUMNS,
        measure="brokers",
        goal=Goal(most=0.3),
    ),
    Row(
        name="link",
        what="through a link of limited speed, rows/s, 2 of 20 columns beside all",
        group=LINK,
        measured=TWO_COLUMNS,
        beside=ALL_COLUMNS,
        measure="rate",
        goal=Goal(least=6),
    ),
    Row(
        name="filter",
        what="a filter on `at` that 1 % match, rows gone through/s, beside no filter",
        group=CLIENT,
        measured=FILTERED,
        beside=ALL_COLUMNS,
        measure="rate",
        goal=Goal(least=10),
    ),
    Row(
        name="spark-filter",
        what="the same filter in Spark, rows gone through/s, beside no filter",
        group=SPARK_ALL,
        measured=FILTERED,
        beside=TYPED,
        measure="rate",
    ),
    Row(
        name="poll-table",
        what="poll_table, all columns, rows/s, beside an opaque topic of as many bytes",
        group=CLIENT,
        measured=ALL_COLUMNS,
        beside=OPAQUE,
        measure="rate",
        goal=Goal(least=1),
    ),
    Row(
        name="fluss",
        what="poll_table, 2 of 20 columns, rows/s, beside Apache Fluss's client and servers",
        group=FLUSS,
        measured=TYPED,
        beside=OTHER,
        measure="rate",
        goal=Goal(least=1),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One turn of one who takes turns."""

    rows: int
    time_s: float
    brokers_s: float
    """Processor time of the brokers."""
    reader_s: float
    """That of Spark with its Python, or of the client."""
    sent: int = 0
    """Bytes, where they were counted."""

    def figure(self, measure: str) -> float:
        """As a row of this measure tells it."""
        if measure == "rate":
            return self.rows / self.time_s
        if measure == "brokers":
            return self.brokers_s / self.rows * 1_000_000
        return self.sent / self.rows

    @property
    def cpu_s(self) -> float:
        """Of all, for a row."""
        return (self.brokers_s + self.reader_s) / self.rows


Round = Mapping[str, Measured]
"""By the names of those who took turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A row with its figures: medians over the rounds, and the least and the most of them."""

    name: str
    what: str
    measured: float | None = None
    measured_spread: tuple[float, float] | None = None
    beside: float | None = None
    beside_spread: tuple[float, float] | None = None
    ratio: float | None = None
    ratio_spread: tuple[float, float] | None = None
    goal: str | None = None
    met: bool | None = None
    cpu_ratio: float | None = None
    """Processor time of brokers and readers: other programs disturb it less."""
    stopped_by: str | None = None
    """Why there are no figures."""
    rounds: Sequence[dict[str, Any]] = ()


COLUMNS = (
    "what",
    "typed",
    "from-to",
    "beside",
    "from-to",
    "ratio",
    "from-to",
    "goal",
    "met",
    "cpu ratio",
)


def result_of(row: Row, rounds: Sequence[Round]) -> Result:
    """The figures of a row."""
    pairs = [(each[row.measured], each[row.beside]) for each in rounds]
    ours = [one.figure(row.measure) for one, _ in pairs]
    theirs = [other.figure(row.measure) for _, other in pairs]
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    ratio = rounded(statistics.median(ratios))
    return Result(
        name=row.name,
        what=row.what,
        measured=rounded(statistics.median(ours)),
        measured_spread=spread(ours),
        beside=rounded(statistics.median(theirs)),
        beside_spread=spread(theirs),
        ratio=ratio,
        ratio_spread=spread(ratios),
        goal=None if row.goal is None else str(row.goal),
        met=None if row.goal is None else row.goal.is_met_by(ratio),
        cpu_ratio=rounded(statistics.median(one.cpu_s / other.cpu_s for one, other in pairs)),
        rounds=[
            {
                name: {
                    "rows": each.rows,
                    "time_s": rounded(each.time_s),
                    "brokers_s": rounded(each.brokers_s),
                    "reader_s": rounded(each.reader_s),
                    "sent": each.sent,
                }
                for name, each in ((row.measured, one), (row.beside, other))
            }
            for one, other in pairs
        ],
    )


def stopped(row: Row, reason: str) -> Result:
    """A row that can't be measured here."""
    return Result(name=row.name, what=row.what, stopped_by=reason)


def cells(result: Result) -> list[object]:
    """Of a line of the table."""
    if result.stopped_by is not None:
        return [f"{result.what}: {result.stopped_by}", *[None] * (len(COLUMNS) - 1)]
    assert result.measured is not None
    assert result.beside is not None
    assert result.measured_spread is not None
    assert result.beside_spread is not None
    assert result.ratio_spread is not None
    return [
        result.what,
        short(result.measured),
        spread_text(result.measured_spread),
        short(result.beside),
        spread_text(result.beside_spread),
        result.ratio,
        spread_text(result.ratio_spread),
        result.goal,
        result.met,
        result.cpu_ratio,
    ]
