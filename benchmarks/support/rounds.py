"""A figure beside its limit, measured by turns in the same run.

The two sides are measured in alternation, each first in every other round, and compared round by
round, so that other load on the machine weighs on both. The result is the median of the ratios.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Step = Callable[[], float]
"""Does its work once and gives the figure: a rate, or a time."""


COLUMNS = ("what", "measured", "limit", "ratio", "goal", "met")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One figure; its unit is in `what`, and what its limit is."""

    what: str
    measured: float
    limit: float | None
    ratio: float | None
    goal: str | None
    met: bool | None


@dataclass(frozen=True, slots=True)
class Goal:
    """Bounds, both inclusive, of a ratio or of a figure."""

    least: float | None = None
    most: float | None = None

    def is_met_by(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )

    def __str__(self) -> str:
        if self.least is None:
            return f"<= {self.most}"
        return f">= {self.least}" if self.most is None else f"{self.least} to {self.most}"


def compare(
    what: str, measured: Step, limit: Step, *, rounds: int, goal: Goal | None = None
) -> Result:
    """`measured` against `limit`, after one turn of each to warm up; the goal is for the ratio."""
    ours: list[float] = []
    theirs: list[float] = []
    for turn in range(rounds + 1):
        one, other = 0.0, 0.0
        if turn % 2:
            one, other = measured(), limit()
        else:
            other, one = limit(), measured()
        if turn:
            ours.append(one)
            theirs.append(other)
    ratio = statistics.median(mine / its for mine, its in zip(ours, theirs, strict=True))
    return Result(
        what=what,
        measured=rounded(statistics.median(ours)),
        limit=rounded(statistics.median(theirs)),
        ratio=rounded(ratio),
        goal=None if goal is None else str(goal),
        met=None if goal is None else goal.is_met_by(rounded(ratio)),
    )


def alone(what: str, measured: float, *, goal: Goal | None = None) -> Result:
    """A figure that has no limit but its goal."""
    return Result(
        what=what,
        measured=rounded(measured),
        limit=None,
        ratio=None,
        goal=None if goal is None else str(goal),
        met=None if goal is None else goal.is_met_by(rounded(measured)),
    )


def cpu_seconds(work: Callable[[], object]) -> float:
    """Processor time of this thread, in the kernel too: for work that waits for nothing, and on a
    machine that has other work to do.
    """
    started = time.thread_time()
    work()
    return max(time.thread_time() - started, 1e-9)


def seconds(work: Callable[[], object]) -> float:
    """Time on the clock: for work that waits."""
    started = time.perf_counter()
    work()
    return max(time.perf_counter() - started, 1e-9)


def rounded(value: float) -> float:
    """Three digits, and no fraction where that is noise."""
    if value >= 100:
        return round(value)
    return float(f"{value:.3g}")


def spread(figures: Sequence[float]) -> tuple[float, float]:
    """The least and the most of them."""
    return rounded(min(figures)), rounded(max(figures))


def spread_text(figures: tuple[float, float]) -> str:
    return "-".join(map(short, figures))


def short(value: float) -> str:
    """Rates in thousands and millions: a table is read by people."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:.2f}M"
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:g}"
