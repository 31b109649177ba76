"""Arguments that several benchmarks share, and the folder for their files."""

import argparse
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.support.rounds import Cell
from storage_engine.tools.arguments import positive_integer
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_results, print_table

Row = TypeVar("Row")


def add_only(parser: argparse.ArgumentParser, what: str, names: Sequence[str]) -> None:
    """Add `--only`, for parts of the kind `what`; it may be given several times."""
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar=what.upper(),
        help=f"measure this {what} alone; may be given several times: {', '.join(names)}",
    )


def add_numbers(
    parser: argparse.ArgumentParser,
    *numbers: tuple[str, int, str],
    kind: Callable[[str], int] = positive_integer,
) -> None:
    """Add an argument for each of these: its name, its default, what it counts."""
    for name, default, meaning in numbers:
        parser.add_argument(
            name,
            default=default,
            type=kind,
            metavar="N",
            help=f"{meaning} (default {default})",
        )


def add_dir(parser: argparse.ArgumentParser) -> None:
    """Add `--dir DIR`, for `scratch`."""
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="directory for the files (default: the system's)"
    )


def check_dir(directory: Path | None) -> None:
    """UsageError for a `--dir` that is not there."""
    if directory is not None and not directory.is_dir():
        raise UsageError(f"--dir '{directory}' is not a directory; create it first")


def check_size(args: argparse.Namespace, least_rows: int) -> None:
    """UsageError for fewer --rows, or a --dir that is not there."""
    if args.rows < least_rows:
        raise UsageError(f"--rows is {args.rows}; give {least_rows} or more")
    check_dir(args.dir)


def print_compared(
    columns: Sequence[str],
    results: Sequence[Row],
    cells: Callable[[Row], list[Cell]],
    *,
    as_json: bool,
) -> None:
    """Print a table with a line for each result, or JSON with all fields."""
    if as_json:
        print_results(columns, results, as_json=True)
    else:
        print_table(columns, [cells(result) for result in results])


@contextlib.contextmanager
def scratch(directory: Path | None = None) -> Iterator[Path]:
    """Yield a folder that is removed at the end, in `directory`. UsageError if that is missing."""
    check_dir(directory)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=directory) as folder:
        yield Path(folder)


def add_downloads(parser: argparse.ArgumentParser) -> None:
    """Add `--folder FOLDER`: where downloads are kept."""
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        default=default_folder(),
        help="directory where downloads are kept (default: ~/.cache/headrace/beside-kafka)",
    )


def default_folder() -> Path:
    """Return the folder of downloads in this machine's cache directory."""
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "headrace" / "beside-kafka"
