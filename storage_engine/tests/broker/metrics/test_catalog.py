"""The names of metrics: in the document as in the program, and used as they are."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_engine.broker.metrics.catalog import CATALOG, COUNTER, HISTOGRAM, PROCESS_NAMES

ROOT = Path(__file__).parents[4]
DOCUMENT = ROOT / "docs" / "metrics.md"
MONITORING = ROOT / "conf" / "monitoring"
HEADING = "| Name | Kind | Labels | Meaning |\n|---|---|---|---|\n"

SCRAPED_LABELS = {"job", "instance", "le"}
"""What Prometheus adds, and the bounds of buckets."""

SELECTOR = re.compile(r"([a-z_][a-z0-9_]*)\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")
GROUPING = re.compile(r"\bby\s*\(([^)]*)\)")


def _table() -> str:
    lines = [
        f"| `{row.name}` | {row.kind.value} | {', '.join(f'`{label}`' for label in row.labels)} |"
        f" {row.doc} |\n"
        for row in CATALOG
    ]
    return HEADING + "".join(lines)


def expressions(found: object) -> Iterator[str]:
    if isinstance(found, dict):
        for key, value in found.items():
            if key in ("expr", "query") and isinstance(value, str) and "{" in value:
                yield value
            else:
                yield from expressions(value)
    elif isinstance(found, list):
        for value in found:
            yield from expressions(value)


def _used() -> list[str]:
    board = json.loads((MONITORING / "grafana-board.json").read_text(encoding="utf-8"))
    rules = (MONITORING / "alert-rules.yml").read_text(encoding="utf-8")
    found = re.findall(r"expr:\s*(?:>\n)?((?:.+\n)(?:\s{10}.+\n)*)", rules)
    assert len(found) == rules.count("alert:")
    return [*expressions(board), *found]


def test_the_document_has_the_table_of_the_program():
    text = DOCUMENT.read_text(encoding="utf-8")
    begin = text.index(HEADING)
    end = text.index("\n\n", begin) + 1
    if os.environ.get("HEADRACE_REWRITE"):
        DOCUMENT.write_text(text[:begin] + _table() + text[end:])
    assert text[begin:end] == _table()


def test_names_follow_the_rules_of_prometheus():
    for row in CATALOG:
        assert re.fullmatch(r"[a-z_][a-z0-9_]*", row.name)
        assert (row.kind is COUNTER) == row.name.endswith("_total"), row.name
        assert row.doc.endswith("."), row.name


@pytest.mark.parametrize("expression", _used())
def test_board_and_rules_use_names_and_labels_that_there_are(expression):
    known = {row.name: {*row.labels} for row in CATALOG}
    known |= {f"{row.name}_bucket": {*row.labels, "le"} for row in CATALOG if row.kind is HISTOGRAM}
    known |= {name: set() for name in (*PROCESS_NAMES, "up")}
    labels = set(SCRAPED_LABELS)
    selectors = SELECTOR.findall(expression)
    assert selectors
    for name, matchers in selectors:
        assert name in known
        assert set(MATCHER.findall(matchers)) <= known[name] | SCRAPED_LABELS
        labels |= known[name]
    for grouped in GROUPING.findall(expression):
        assert {each.strip() for each in grouped.split(",")} <= labels
