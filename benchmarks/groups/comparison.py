"""Measures each row on a broker of its own, ours first."""

import argparse
from collections.abc import Callable, Sequence

from benchmarks.beside_kafka.processor_time import check_proc
from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.groups import heartbeats, joins, rebalances, restarts
from benchmarks.groups.brokers import Sides
from benchmarks.groups.connections import allow_connections
from benchmarks.groups.results import Figures, GroupResult, results_of
from storage_engine.tools.table import report_line

_ROWS: dict[str, Callable[[Sides, str, argparse.Namespace], Figures]] = {
    "rebalance": rebalances.measure,
    "heartbeats": heartbeats.measure,
    "joins": joins.measure,
    "restarts": restarts.measure,
}


def measure(args: argparse.Namespace, rows: Sequence[str]) -> list[GroupResult]:
    """Return the lines of the rows."""
    check_proc()
    allow_connections(max(2 * (args.members + args.rounds), args.many, joins.CONNECTIONS))
    sides = Sides(args)
    found: list[GroupResult] = []
    for row in rows:
        figures: dict[str, Figures] = {THEIRS: {}}
        for side in sides.names:
            figures[side] = _ROWS[row](sides, side, args)
            for what, figure in figures[side].items():
                report_line(f"{side}: {what}: {figure:,.3g}")
        found += results_of(row, figures[OURS], figures[THEIRS])
    return found
