"""The order of the rows of `headrace bench groups`, and which side's figures stand where."""

import argparse

import pytest

from benchmarks.beside_kafka.rows import OURS, THEIRS
from benchmarks.groups import comparison


class FakeSides:
    def __init__(self, args: argparse.Namespace) -> None:
        self.names = [OURS, THEIRS] if args.beside_kafka else [OURS]


@pytest.mark.parametrize("beside_kafka", [False, True])
def test_each_row_has_a_line_for_each_figure_of_ours(monkeypatch, beside_kafka):
    figures = {OURS: {"a, ms": 1.0, "b, ms": 2.0}, THEIRS: {"a, ms": 4.0}}
    rows = {name: lambda _sides, side, _args: figures[side] for name in ("joins", "restarts")}
    monkeypatch.setattr(comparison, "Sides", FakeSides)
    monkeypatch.setattr(comparison, "_ROWS", rows)
    args = argparse.Namespace(beside_kafka=beside_kafka, members=1, rounds=1, many=1)
    lines = comparison.measure(args, ["restarts", "joins"])
    kafka = 4.0 if beside_kafka else None
    assert [(line.row, line.what, line.headrace, line.kafka) for line in lines] == [
        ("restarts", "a, ms", 1.0, kafka),
        ("restarts", "b, ms", 2.0, None),
        ("joins", "a, ms", 1.0, kafka),
        ("joins", "b, ms", 2.0, None),
    ]
