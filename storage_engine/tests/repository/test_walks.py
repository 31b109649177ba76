"""The walks through a broker that `.ci/walks.py` counts stay as short as they were made."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def walks() -> dict[str, list[str]]:
    command = [sys.executable, ROOT / ".ci" / "walks.py", "--json"]
    printed = subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout
    found: dict[str, list[str]] = json.loads(printed)
    return found


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("produce, acks=all", 30),
        ("fetch", 22),
        ("commit of a micro-batch, beyond a transactional produce", 6),
        ("controller failover", 29),
    ],
)
def test_a_walk_does_not_get_longer(walks, name, most):
    assert len(walks[name]) <= most, walks[name]
