"""One figure of two sides, compared round by round: medians, with the least and the most."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.support.rounds import (
    Cell,
    Goal,
    Judged,
    judged,
    ratios_of,
    rounded,
    short,
    spread,
    spread_text,
)

COMPARED = ("what", "headrace", "from-to", "kafka", "from-to", "ratio", "from-to", "goal", "met")


class Ratio(Judged):
    """The fields of every row that compare one side with the other."""

    ratio: float
    ratio_spread: tuple[float, float]


class BothSides(Ratio):
    """The fields of Ratio, with the figures of the sides."""

    headrace: float
    headrace_spread: tuple[float, float]
    kafka: float
    kafka_spread: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A row with its figures."""

    name: str
    what: str
    headrace: float
    headrace_spread: tuple[float, float]
    kafka: float
    kafka_spread: tuple[float, float]
    ratio: float
    ratio_spread: tuple[float, float]
    goal: str | None
    met: bool | None

    def cells(self) -> list[Cell]:
        """Return the cells of a line of the table, below COMPARED."""
        ours = figure_cells(self.headrace, self.headrace_spread)
        theirs = figure_cells(self.kafka, self.kafka_spread)
        ratio = spread_text(self.ratio_spread)
        return [self.what, *ours, *theirs, self.ratio, ratio, self.goal, self.met]


def compared(ours: Sequence[float], theirs: Sequence[float], goal: Goal | None) -> BothSides:
    """Return the figures of a row."""
    return {
        "headrace": rounded(statistics.median(ours)),
        "headrace_spread": spread(ours),
        "kafka": rounded(statistics.median(theirs)),
        "kafka_spread": spread(theirs),
        **ratio_of(ours, theirs, goal),
    }


def ratio_of(ours: Sequence[float], theirs: Sequence[float], goal: Goal | None) -> Ratio:
    """Return the median of the rounds' ratios, for which the goal is, and their range."""
    ratios = ratios_of(ours, theirs)
    ratio = rounded(statistics.median(ratios))
    return {"ratio": ratio, "ratio_spread": spread(ratios), **judged(goal, ratio)}


def figure_cells(
    figure: float | None, figures: tuple[float, float] | None
) -> tuple[str | None, str | None]:
    """Return a figure and its range as cells of the table; None twice without a figure."""
    if figure is None or figures is None:
        return None, None
    return short(figure), spread_text(figures)
