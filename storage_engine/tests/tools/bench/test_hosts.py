"""`headrace bench hosts`: what is refused before anything starts."""

import pytest

from benchmarks.hosts import MOST_BROKERS, MOST_PARTITIONS
from storage_engine.tools.cli import main


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--brokers", "7"], "--brokers 7 is impossible; give a multiple of 3"),
        (["--brokers", str(MOST_BROKERS + 3)], f"up to {MOST_BROKERS}"),
        (["--partitions", str(MOST_PARTITIONS + 1)], f"must be at most {MOST_PARTITIONS}"),
    ],
)
def test_arguments_that_cannot_be_right_are_told(capsys, arguments, problem):
    assert main(["bench", "hosts", *arguments]) == 2
    assert problem in capsys.readouterr().err
