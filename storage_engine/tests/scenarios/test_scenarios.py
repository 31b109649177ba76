"""Scenarios written as text: steps, and below each step what it is to answer.

    # a comment
    write t first
        offset 0

A line without indentation is a step; the indented lines below it are what it must print. The
commands are the methods of `world.World`. With HEADRACE_REWRITE=1 a run writes down what the steps
have printed: look at the difference before you commit it.
"""

import os
from pathlib import Path

import pytest

from storage_engine.tests.scenarios.world import World

FOLDER = Path(__file__).parent
INDENT = "    "
REWRITES = os.environ.get("HEADRACE_REWRITE") == "1"


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.txt")))
def test_a_scenario_goes_as_it_is_written(name, tmp_path):
    expected = (FOLDER / name).read_text()
    printed = played(expected, tmp_path)
    if REWRITES:
        (FOLDER / name).write_text(printed)
    else:
        assert printed.splitlines() == expected.splitlines()


def test_a_scenario_that_goes_otherwise_is_noticed(tmp_path):
    wrong = "brokers 3\ntopic t\nwrite t first\n    offset 7\n"
    assert "offset 0" in played(wrong, tmp_path)


def test_a_step_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ValueError, match="'rwite'"):
        played("brokers 3\nrwite t first\n", tmp_path)


def played(text: str, folder: Path) -> str:
    """The scenario with what its steps print."""
    world = World(folder)
    lines = []
    try:
        for line in text.splitlines():
            if line.startswith(INDENT):
                continue
            lines.append(line)
            if line and not line.startswith("#"):
                command, *words = line.split()
                lines += [INDENT + answer for answer in world.run(command, words)]
    finally:
        world.close()
    return "\n".join(lines) + "\n"
