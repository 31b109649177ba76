"""One figure of both sides, compared round by round: medians, with the least and the most."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.support.rounds import Goal, rounded, short, spread, spread_text

COMPARED = ("what", "headrace", "from-to", "kafka", "from-to", "ratio", "from-to", "goal", "met")


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
        return [
            self.what,
            short(self.headrace),
            spread_text(self.headrace_spread),
            short(self.kafka),
            spread_text(self.kafka_spread),
            self.ratio,
            spread_text(self.ratio_spread),
            self.goal,
            self.met,
        ]


def compared(ours: Sequence[float], theirs: Sequence[float], goal: Goal | None) -> dict[str, Any]:
    """The figures of a Compared."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    ratio = rounded(statistics.median(ratios))
    return {
        "headrace": rounded(statistics.median(ours)),
        "headrace_spread": spread(ours),
        "kafka": rounded(statistics.median(theirs)),
        "kafka_spread": spread(theirs),
        "ratio": ratio,
        "ratio_spread": spread(ratios),
        "goal": None if goal is None else str(goal),
        "met": None if goal is None else goal.is_met_by(ratio),
    }
