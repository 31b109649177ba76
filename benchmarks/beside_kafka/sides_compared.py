"""One figure of two sides, compared round by round: medians, with the least and the most."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.support.rounds import (
    Goal,
    judged,
    ratios_of,
    rounded,
    short,
    spread,
    spread_text,
)

COMPARED = ("what", "headrace", "from-to", "kafka", "from-to", "ratio", "from-to", "goal", "met")
SIDES = ("headrace", "kafka")


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

    def cells(self) -> list[object]:
        """Those of a line of the table, below COMPARED."""
        return cells_of(asdict(self))


def compared(
    ours: Sequence[float], theirs: Sequence[float], goal: Goal | None, sides: Sequence[str] = SIDES
) -> dict[str, Any]:
    """The figures of a row, by the names of the sides."""
    ratios = ratios_of(ours, theirs)
    ratio = rounded(statistics.median(ratios))
    found: dict[str, Any] = {"ratio": ratio, "ratio_spread": spread(ratios), **judged(goal, ratio)}
    for side, figures in zip(sides, (ours, theirs), strict=True):
        found |= {side: rounded(statistics.median(figures)), f"{side}_spread": spread(figures)}
    return found


def cells_of(row: Mapping[str, Any], sides: Sequence[str] = SIDES) -> list[object]:
    """The line of a row whose figures are those of `compared`."""
    cells: list[object] = [row["what"]]
    for side in sides:
        cells += [short(row[side]), spread_text(row[f"{side}_spread"])]
    return [*cells, row["ratio"], spread_text(row["ratio_spread"]), row["goal"], row["met"]]
