"""docs/spark.md names every option, and compares each with Spark's Kafka connector."""

import re
from pathlib import Path

from connector.options.option_table import CLIENT_PREFIX, OPTIONS, Status

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"
REFERENCES = (
    "## Options of source and sink",
    "## Options of the source",
    "## Options of the sink",
)
COMPARISON = "## Spark's Kafka connector against ours, option by option"
VERDICTS = ("same", "better", "differs, because ")


def _rows(heading):
    section = DOCUMENT.read_text(encoding="utf-8").split(heading, 1)[1].split("\n#", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def _names(cell):
    return {name.removeprefix(CLIENT_PREFIX).lower() for name in re.findall(r"`([^`]+)`", cell)}


def test_every_option_that_works_is_in_the_reference_of_its_side():
    missing = {}
    for heading, side in zip(REFERENCES, (("source", "sink"), ("source",), ("sink",)), strict=True):
        named = set().union(*(_names(row[0]) for row in _rows(heading)))
        wanted = {
            name
            for name, entry in OPTIONS.items()
            if entry.status is Status.WORKS and entry.sides == side
        }
        missing[heading] = wanted ^ named
    assert missing == {heading: set() for heading in REFERENCES}


def test_every_option_has_a_place_in_the_comparison():
    named = set().union(*(_names(row[0]) for row in _rows(COMPARISON)))
    assert {entry.name for name, entry in OPTIONS.items() if name not in named} == set()


def test_every_row_of_the_comparison_has_a_verdict():
    rows = _rows(COMPARISON)
    assert len(rows) > 30
    for option, theirs, ours, verdict in rows:
        assert option and theirs and ours
        assert verdict.startswith(VERDICTS)
        assert len(verdict) > len(VERDICTS[-1]) or verdict in VERDICTS
