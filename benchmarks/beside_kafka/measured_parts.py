"""The arguments of benchmarks that have parts and rounds: which parts, how much of each."""

import argparse
from collections.abc import Iterable, Sequence

from storage_engine.tools.arguments import positive_integer


def add_only(parser: argparse.ArgumentParser, what: str, names: Sequence[str]) -> None:
    """`--only`, for parts of that kind; it may be given several times."""
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar=what.upper(),
        help=f"measure this {what} alone; may be given several times: {', '.join(names)}",
    )


def add_numbers(parser: argparse.ArgumentParser, numbers: Iterable[tuple[str, int, str]]) -> None:
    """An argument for each of these: its name, its default, what it counts."""
    for name, default, meaning in numbers:
        parser.add_argument(
            name, default=default, type=positive_integer, metavar="N", help=f"{meaning} ({default})"
        )
