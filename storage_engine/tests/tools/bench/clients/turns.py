"""Turns of the comparison, made up."""

from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.clients.loads import ROWS
from benchmarks.clients.results import CEILING


def turns_of(name: str, ours: list[float], theirs: list[float], alone: float | None = None):
    turns = []
    for mine, its in zip(ours, theirs, strict=True):
        turn = {OURS: {name: mine}, THEIRS: {name: its}}
        turns.append(turn if alone is None else {**turn, CEILING: {name: alone}})
    return turns


def row_of(name: str):
    return next(row for row in ROWS if row.name == name)
