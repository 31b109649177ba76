"""The rows of the table: what each measures, beside what, and its goal.

Rule: sides that are compared take turns, and are compared round by round, since other load on the
machine then weighs on both. The median of the ratios is reported, and their range.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from benchmarks.beside_kafka.sides_compared import COMPARED, figure_cells, ratio_of
from benchmarks.support.rounds import Cell, Goal, rounded, spread

SPARK_TWO, SPARK_ALL, SPARK_WRITE = "spark-two", "spark-all", "spark-write"
CLIENT, LINK, FLUSS = "client", "link", "fluss"
"""The groups of rows that are measured together, by turns."""

TYPED, JSON, MEMORY, FILTERED = "typed", "json", "memory", "filtered"
TWO_COLUMNS, ALL_COLUMNS, OPAQUE, OTHER = "two", "all", "opaque", "fluss"
"""The sides that take turns."""


class Row(NamedTuple):
    """A row of the table; several may come of one group."""

    name: str
    group: str
    measured: str
    beside: str
    what: str
    goal: Goal | None = None
    """The goal for the ratio of the first to the second."""
    measure: str = "rate"
    """"rate": rows a second; "sent": bytes that the brokers sent for a row; "brokers": their
    processor time, in seconds for a million rows."""


# fmt: off
ROWS = (
    Row("spark-two", SPARK_TWO, TYPED, JSON,
        "Spark reads 2 of 20 columns, rows/s, beside from_json on Apache Kafka", Goal(least=10)),
    Row("spark-two-memory", SPARK_TWO, TYPED, MEMORY,
        "the same beside a source that has these rows in memory (instead of the first)",
        Goal(least=0.8)),
    Row("spark-all", SPARK_ALL, TYPED, JSON,
        "Spark reads all 20, rows/s, beside from_json on Apache Kafka", Goal(least=5)),
    Row("spark-all-memory", SPARK_ALL, TYPED, MEMORY,
        "the same beside a source that has these rows in memory"),
    Row("spark-write", SPARK_WRITE, TYPED, JSON,
        "Spark writes 20 columns exactly once, rows/s, beside to_json at least once",
        Goal(least=8)),
    Row("spark-write-memory", SPARK_WRITE, TYPED, MEMORY,
        "the same beside a sink in Python that holds the rows"),
    Row("sent", LINK, TWO_COLUMNS, ALL_COLUMNS,
        "bytes that brokers send for a row, 2 of 20 columns beside all", Goal(most=0.15), "sent"),
    Row("brokers", CLIENT, TWO_COLUMNS, ALL_COLUMNS,
        "the brokers' processor time, s per million rows, 2 of 20 columns beside all",
        Goal(most=0.3), "brokers"),
    Row("link", LINK, TWO_COLUMNS, ALL_COLUMNS,
        "through a link of limited speed, rows/s, 2 of 20 columns beside all", Goal(least=6)),
    Row("filter", CLIENT, FILTERED, ALL_COLUMNS,
        "a filter on `at` that 1 % match, rows gone through/s, beside no filter", Goal(least=10)),
    Row("spark-filter", SPARK_ALL, FILTERED, TYPED,
        "the same filter in Spark, rows gone through/s, beside no filter"),
    Row("poll-table", CLIENT, ALL_COLUMNS, OPAQUE,
        "poll_table, all columns, rows/s, beside an opaque topic of as many bytes", Goal(least=1)),
    Row("fluss", FLUSS, TYPED, OTHER,
        "poll_table, 2 of 20 columns, rows/s, beside Apache Fluss's client and servers",
        Goal(least=1)),
)
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The figures of one turn of a side."""

    rows: int
    time_s: float
    brokers_s: float
    """Processor time of the brokers."""
    reader_s: float
    """Processor time of Spark with its Python, or of the client."""
    sent: int = 0
    """Bytes that the brokers sent, where they were counted."""

    def figure(self, measure: str) -> float:
        """Return the figure of a row with this measure."""
        if measure == "rate":
            return self.rows / self.time_s
        if measure == "brokers":
            return self.brokers_s / self.rows * 1_000_000
        return self.sent / self.rows

    def document(self) -> dict[str, float]:
        """Return all fields, rounded."""
        return {name: rounded(value) for name, value in asdict(self).items()}

    @property
    def cpu_s(self) -> float:
        """The processor time of the brokers and the reader for one row."""
        return (self.brokers_s + self.reader_s) / self.rows


Round = Mapping[str, Measured]
"""The figures of a round, by the names of the sides."""


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
    """The ratio of processor times of brokers and readers, which other programs disturb less."""
    stopped_by: str | None = None
    """Why there are no figures."""
    rounds: Sequence[dict[str, dict[str, float]]] = ()


COLUMNS = ("what", "typed", "from-to", "beside", *COMPARED[4:], "cpu ratio")


def result_of(row: Row, rounds: Sequence[Round]) -> Result:
    """Return the figures of a row."""
    pairs = [(each[row.measured], each[row.beside]) for each in rounds]
    ours = [one.figure(row.measure) for one, _ in pairs]
    theirs = [other.figure(row.measure) for _, other in pairs]
    return Result(
        name=row.name,
        what=row.what,
        cpu_ratio=rounded(statistics.median(one.cpu_s / other.cpu_s for one, other in pairs)),
        rounds=[
            {row.measured: one.document(), row.beside: other.document()} for one, other in pairs
        ],
        measured=rounded(statistics.median(ours)),
        measured_spread=spread(ours),
        beside=rounded(statistics.median(theirs)),
        beside_spread=spread(theirs),
        **ratio_of(ours, theirs, row.goal),
    )


def stopped(row: Row, reason: str) -> Result:
    """Return the result of a row that can't be measured here."""
    return Result(name=row.name, what=row.what, stopped_by=reason)


def cells(result: Result) -> list[Cell]:
    """Return the cells of a line of the table."""
    what = result.what if result.stopped_by is None else f"{result.what}: {result.stopped_by}"
    ours = figure_cells(result.measured, result.measured_spread)
    theirs = figure_cells(result.beside, result.beside_spread)
    _, ratio = figure_cells(result.ratio, result.ratio_spread)
    return [what, *ours, *theirs, result.ratio, ratio, result.goal, result.met, result.cpu_ratio]
