"""How rounds become a row: sides are compared round by round, and the median ratio counts."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.beside_kafka.sides_compared import COMPARED, Compared, compared
from benchmarks.clients.loads import ClientRow, Figures
from benchmarks.support.rounds import Cell, rounded, short

CEILING = "acknowledger"
"""The third side, for producers alone: a peer that keeps nothing."""

Turn = dict[str, Figures]
"""The figures of a round, by side."""

COLUMNS = (*COMPARED, "client alone")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResult(Compared):
    """A row with its figures."""

    client_alone: float | None
    """The client's rate or latency with a peer that only acknowledges: neither side can be
    faster."""
    rounds: list[dict[str, float]]
    """The figure of each side, by round."""


def result_of(row: ClientRow, turns: Sequence[Turn]) -> ClientResult:
    """Return the figures of a row."""
    ours = [turn[OURS][row.name] for turn in turns]
    theirs = [turn[THEIRS][row.name] for turn in turns]
    alone = [turn[CEILING][row.name] for turn in turns if row.name in turn.get(CEILING, {})]
    return ClientResult(
        name=row.name,
        what=row.what,
        **compared(ours, theirs, row.goal),
        client_alone=rounded(statistics.median(alone)) if alone else None,
        rounds=[
            {name: rounded(side[row.name]) for name, side in turn.items() if row.name in side}
            for turn in turns
        ],
    )


def cells(result: ClientResult) -> list[Cell]:
    """Return the cells of a line of the table."""
    alone = result.client_alone
    return [*result.cells(), None if alone is None else short(alone)]
