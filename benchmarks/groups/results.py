"""The lines of the table: what each figure is, its goal, and Apache Kafka's beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.groups.fetches import MAX_WAIT_MS
from benchmarks.support.rounds import Goal, judged, rounded

COLUMNS = ("row", "what", "headrace", "kafka", "ratio", "goal", "met")

Figures = Mapping[str, float]
"""The figures of a row of one side, by their texts, which have the unit."""

TARGETS = "until all targets are reached, ms"
ABOVE_QUIET = "longest pause above the quiet run's, ms"
STEADY = "steady state: processor time, % of a core"
JOIN = "processor time of a JoinGroup, ms"


class _Rule(NamedTuple):
    goal: Goal
    is_of_ratio: bool = False
    """Whether the goal is for ours over Kafka's."""


def _rule(what: str) -> _Rule | None:
    """Return the goal of a figure, which only the consumer protocol and joins have."""
    if what.startswith("classic"):
        return None
    if what.endswith(ABOVE_QUIET):
        return _Rule(Goal(most=MAX_WAIT_MS))
    if what.endswith(TARGETS):
        return _Rule(Goal(most=1.0), is_of_ratio=True)
    if what.endswith(STEADY):
        return _Rule(Goal(most=10.0))
    if what.endswith(JOIN):
        return _Rule(Goal(most=5.0 if what.startswith("10,000th") else 1.0))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """A figure of ours, and Kafka's where it was measured."""

    row: str
    what: str
    headrace: float
    kafka: float | None
    ratio: float | None
    goal: str | None
    met: bool | None


def results_of(row: str, ours: Figures, theirs: Figures) -> list[GroupResult]:
    """Return a line for each of our figures; `theirs` may lack some, or all."""
    found = []
    for what, figure in ours.items():
        headrace = rounded(figure)
        kafka = rounded(theirs[what]) if what in theirs else None
        ratio = rounded(headrace / kafka) if kafka and min(headrace, kafka) > 0 else None
        rule = _rule(what)
        if rule is None or (rule.is_of_ratio and ratio is None):
            judgement = judged(None, headrace)
        else:
            judgement = judged(rule.goal, ratio if rule.is_of_ratio and ratio else headrace)
        if rule is not None and rule.is_of_ratio and judgement["goal"] is not None:
            judgement["goal"] = f"ratio {judgement['goal']}"
        found.append(
            GroupResult(
                row=row, what=what, headrace=headrace, kafka=kafka, ratio=ratio, **judgement
            )
        )
    return found
