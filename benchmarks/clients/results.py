"""How rounds become a row: sides are compared round by round, and the median ratio is told."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.clients.loads import ClientRow, Figures
from benchmarks.support.rounds import rounded, short, spread, spread_text

CEILING = "acknowledger"
"""The third side, of what producers are told: a peer that keeps nothing."""

Turn = dict[str, Figures]
"""A round: what each side gave."""

COLUMNS = (
    "what",
    "headrace",
    "from-to",
    "kafka",
    "from-to",
    "ratio",
    "from-to",
    "goal",
    "met",
    "client alone",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResult:
    """A row with its figures: medians over the rounds, and the least and the most of them."""

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
    client_alone: float | None
    """The client's rate or latency with a peer that only acknowledges: neither side can be
    faster."""
    rounds: list[dict[str, float]]
    """The figure of each side, by round."""


def result_of(row: ClientRow, turns: Sequence[Turn]) -> ClientResult:
    """The figures of a row."""
    ours = [turn[OURS][row.name] for turn in turns]
    theirs = [turn[THEIRS][row.name] for turn in turns]
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    alone = [turn[CEILING][row.name] for turn in turns if row.name in turn.get(CEILING, {})]
    ratio = rounded(statistics.median(ratios))
    return ClientResult(
        name=row.name,
        what=row.what,
        headrace=rounded(statistics.median(ours)),
        headrace_spread=spread(ours),
        kafka=rounded(statistics.median(theirs)),
        kafka_spread=spread(theirs),
        ratio=ratio,
        ratio_spread=spread(ratios),
        goal=None if row.goal is None else str(row.goal),
        met=None if row.goal is None else row.goal.is_met_by(ratio),
        client_alone=rounded(statistics.median(alone)) if alone else None,
        rounds=[
            {name: rounded(side[row.name]) for name, side in turn.items() if row.name in side}
            for turn in turns
        ],
    )


def cells(result: ClientResult) -> list[object]:
    """Of a line of the table."""
    return [
        result.what,
        short(result.headrace),
        spread_text(result.headrace_spread),
        short(result.kafka),
        spread_text(result.kafka_spread),
        result.ratio,
        spread_text(result.ratio_spread),
        result.goal,
        result.met,
        None if result.client_alone is None else short(result.client_alone),
    ]
