"""The README compares every option with Spark's Kafka connector."""

import re
from pathlib import Path

from connector.options.option_table import CLIENT_PREFIX, OPTIONS

README = Path(__file__).parents[2] / "README.md"
HEADING = "### Spark's Kafka connector against ours, option by option"
VERDICTS = ("same", "better", "differs, because ")


def _rows():
    section = README.read_text(encoding="utf-8").split(HEADING, 1)[1].split("\n#", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def _names(cell):
    return {name.removeprefix(CLIENT_PREFIX).lower() for name in re.findall(r"`([^`]+)`", cell)}


def test_every_option_has_a_place_in_the_table():
    named = set().union(*(_names(row[0]) for row in _rows()))
    assert {entry.name for name, entry in OPTIONS.items() if name not in named} == set()


def test_every_row_has_a_verdict():
    rows = _rows()
    assert len(rows) > 30
    for option, theirs, ours, verdict in rows:
        assert option and theirs and ours
        assert verdict.startswith(VERDICTS)
        assert len(verdict) > len(VERDICTS[-1]) or verdict in VERDICTS
