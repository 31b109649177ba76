"""A figure beside its limit, measured by turns in the same run.

The two sides are measured in alternation, each first in every other round, and compared round by
round, so that other load on the machine weighs on both. The result is the median of the ratios.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict, TypeVar

Each = TypeVar("Each")
Cell = str | float | None
"""A value in a column of a table."""
Step = Callable[[], float]
"""A measurement: it does the work once, and returns the figure, a rate or a time."""


COLUMNS = ("what", "measured", "limit", "ratio", "goal", "met")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One figure; `what` names its unit and its limit."""

    what: str
    measured: float
    limit: float | None
    ratio: float | None
    goal: str | None
    met: bool | None


FIGURE_COLUMNS = ("what", "measured", "limit", "ratio", "spread", "goal", "met", "cpu_ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure with its spread and its limit; `what` names the unit."""

    what: str
    measured: float
    limit: float | None = None
    ratio: float | None = None
    spread: str = ""
    """The lowest and the highest ratio, or figure where there is no ratio."""
    goal: str | None = None
    met: bool | None = None
    cpu_ratio: float | None = None
    """The broker's processor time over the limit's, for the same work."""


class Judged(TypedDict):
    """The two fields of every row about its goal."""

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


def judged(goal: Goal | None, value: float) -> Judged:
    """Return the goal as printed, and whether the value meets it; None twice without a goal."""
    if goal is None:
        return {"goal": None, "met": None}
    return {"goal": str(goal), "met": goal.is_met_by(value)}


def compare(
    what: str, measured: Step, limit: Step, *, rounds: int, goal: Goal | None = None
) -> Result:
    """Compare `measured` with `limit`, after a turn of each to warm up; the goal is the ratio's."""
    ours, theirs = by_turns(measured, limit, rounds)
    return compared(what, ours, theirs, goal=goal)


def by_turns(
    one: Callable[[], Each], other: Callable[[], Each], rounds: int
) -> tuple[list[Each], list[Each]]:
    """Return the results of both, by rounds; the round that fills caches is not counted."""
    ours: list[Each] = []
    theirs: list[Each] = []
    for turn in range(rounds + 1):
        if turn % 2:
            mine, its = one(), other()
        else:
            its, mine = other(), one()
        if turn:
            ours.append(mine)
            theirs.append(its)
    return ours, theirs


def compared(
    what: str, measured: Sequence[float], limits: Sequence[float], *, goal: Goal | None = None
) -> Result:
    """Return the medians, and the median of the rounds' ratios."""
    ratio = rounded(statistics.median(ratios_of(measured, limits)))
    return Result(
        what=what,
        measured=rounded(statistics.median(measured)),
        limit=rounded(statistics.median(limits)),
        ratio=ratio,
        **judged(goal, ratio),
    )


def ratios_of(measured: Sequence[float], limits: Sequence[float]) -> list[float]:
    """Return the ratio of each round."""
    return [one / max(other, 1e-9) for one, other in zip(measured, limits, strict=True)]


def alone(what: str, measured: float, *, goal: Goal | None = None) -> Result:
    """Return a figure that has no limit but its goal."""
    value = rounded(measured)
    return Result(what=what, measured=value, limit=None, ratio=None, **judged(goal, value))


def beside(what: str, measured: float, limit: float, *, goal: Goal | None = None) -> Result:
    """Return a figure and its limit; the goal is for the figure."""
    return Result(
        what=what,
        measured=rounded(measured),
        limit=rounded(limit),
        ratio=rounded(measured / limit),
        **judged(goal, rounded(measured)),
    )


def cpu_seconds(work: Callable[[], Each]) -> float:
    """Return this thread's processor time for `work`, in the kernel too: for work that waits for
    nothing, and on a machine that has other work to do.
    """
    started = time.thread_time()
    work()
    return max(time.thread_time() - started, 1e-9)


def seconds(work: Callable[[], Each]) -> float:
    """Return the time on the clock for `work`: for work that waits."""
    started = time.perf_counter()
    work()
    return max(time.perf_counter() - started, 1e-9)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which `percent` of the values are; infinity for no values."""
    ordered = sorted(values) or [float("inf")]
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def rounded(value: float) -> float:
    """Return three digits, and no fraction where that is noise."""
    if value >= 100:
        return round(value)
    return float(f"{value:.3g}")


def spread(figures: Sequence[float]) -> tuple[float, float]:
    """Return the least and the greatest of the figures."""
    return rounded(min(figures)), rounded(max(figures))


def plain_spread(figures: Sequence[float]) -> str:
    """Return the spread of the figures as a text, with all digits."""
    least, most = spread(figures)
    return f"{least}-{most}"


def spread_text(figures: tuple[float, float]) -> str:
    """Return a spread as a text for people."""
    return "-".join(map(short, figures))


def short(value: float) -> str:
    """Return a text with rates in thousands and millions: a table is read by people."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:.2f}M"
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:g}"
