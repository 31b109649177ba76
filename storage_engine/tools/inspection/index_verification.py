"""`headrace dump-log --verify-index`: compares the indexes of segments with their logs.

An index without its `.log` is an error, not a success. Source: R-LOG3.
"""

from collections.abc import Sequence
from pathlib import Path

from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError
from storage_engine.tools.inspection.segment_check import (
    IndexEntryReport,
    base_offset_of,
    check_index,
    entry_document,
    mapped,
)
from storage_engine.tools.table import print_json, print_table, write_line

INDEX_SUFFIXES = (".index", ".timeindex")

_COLUMNS = ("file", "entry", "last offset", "value", "problem")


def verify_indexes(files: Sequence[Path], *, as_json: bool) -> int:
    """Prints the entries that are wrong and how many were looked at; CommandError, the first of
    them, when there are any.
    """
    documents: list[Document] = []
    rows: list[tuple[str, int, int, int, str | None]] = []
    entries = 0
    for path in dict.fromkeys(index for file in files for index in _indexes_of(file)):
        reports = _reports(path)
        entries += len(reports)
        wrong = [report for report in reports if report.problem is not None]
        rows += [(str(path), r.number, r.offset, r.value, r.problem) for r in wrong]
        documents.append(
            {
                "file": str(path),
                "entries": len(reports),
                "mismatches": [entry_document(path, report) for report in wrong],
            }
        )
    if as_json:
        print_json(documents)
    else:
        if rows:
            print_table(_COLUMNS, rows)
        write_line(f"{len(documents)} indexes, {entries} entries, {len(rows)} wrong")
    if rows:
        file, number, _, _, problem = rows[0]
        more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
        raise CommandError(f"{file}: entry {number}: {problem}{more}")
    return 0


def _indexes_of(path: Path) -> list[Path]:
    """The index itself, or those beside a `.log`."""
    base_offset_of(path)
    if path.suffix in INDEX_SUFFIXES:
        return [path]
    if not path.exists():
        raise CommandError(f"'{path}' is not there: give an existing .log, .index or .timeindex")
    beside = [path.with_suffix(suffix) for suffix in INDEX_SUFFIXES]
    return [index for index in beside if index.exists()]


def _reports(path: Path) -> list[IndexEntryReport]:
    log_path = path.with_suffix(".log")
    if not log_path.exists():
        raise CommandError(f"'{log_path}' is not there: an index is verified against its log")
    with mapped(path) as data, mapped(log_path) as log:
        return list(check_index(path, data, log))
