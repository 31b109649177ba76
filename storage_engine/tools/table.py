"""Tables and JSON on standard output.

The table and the JSON come from the same rows.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from storage_engine.core.printable import printable
from storage_engine.tools.document import Json
from storage_engine.tools.errors import OutputClosedError

_GAP = "  "


def format_table(columns: Sequence[str], rows: Sequence[Sequence[Json]]) -> str:
    """Left-aligned text, right-aligned numbers, one line per row, a heading in capitals."""
    cells = [[_cell(value) for value in row] for row in rows]
    heading = [column.upper() for column in columns]
    widths = [
        max(len(heading[i]), *(len(row[i]) for row in cells)) if cells else len(heading[i])
        for i in range(len(columns))
    ]
    numeric = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    lines = [
        _GAP.join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in [heading, *cells]
    ]
    return "\n".join(lines)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Json]]) -> None:
    """Print `format_table`; nothing but the heading when there are no rows."""
    write_line(format_table(columns, rows))


def print_json(value: Json) -> None:
    """Print one JSON document, indented."""
    _print(json.dumps(value, indent=2, ensure_ascii=False))


def print_results(columns: Sequence[str], results: Sequence[Any], *, as_json: bool) -> None:
    """Instances of a dataclass: a row of each, its fields in the order of the columns, or JSON."""
    rows = [asdict(result) for result in results]
    if as_json:
        print_json(rows)
    else:
        print_table(columns, [list(row.values()) for row in rows])


Column = str | tuple[str, str]
"""The heading of a column, which is also the field's name, or both."""


def print_rows(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Json]], *, as_json: bool = False
) -> None:
    """A table of documents, or the documents themselves, whole."""
    if as_json:
        print_json(rows)
        return
    names = [(each, each) if isinstance(each, str) else each for each in columns]
    print_table(
        [heading for heading, _ in names], [[row[name] for _, name in names] for row in rows]
    )


def report_line(line: str) -> None:
    """One line of progress to stderr, at once."""
    print(printable(line), file=sys.stderr, flush=True)


def write_line(text: str) -> None:
    """One line to stdout, or several; OutputClosedError when its reader has gone."""
    _print("\n".join(map(printable, text.split("\n"))))


def _print(text: str) -> None:
    try:
        print(text)
    except BrokenPipeError:
        raise OutputClosedError("standard output was closed") from None


def write_bytes(data: "bytes | memoryview") -> None:
    """Bytes to stdout, flushed; OutputClosedError when its reader has gone."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise OutputClosedError("standard output was closed") from None


def _cell(value: Json) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return printable(",".join(str(item) for item in value)) or "-"
    return printable(str(value))


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
