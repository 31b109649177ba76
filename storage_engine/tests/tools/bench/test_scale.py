"""`headrace bench scale`: what is refused before anything starts."""

import pytest

from benchmarks.scale import MAX_PARTITIONS
from storage_engine.tools.cli import main


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--partitions", str(MAX_PARTITIONS + 1)], f"must be at most {MAX_PARTITIONS}"),
        (["--brokers", "5"], "--brokers is for --controller-alone"),
        (["--controller-alone", "--brokers", "2"], "--brokers must be at least 3"),
        (["--dir", "/no/such"], "'/no/such' is not a directory"),
    ],
)
def test_arguments_that_cannot_be_right_are_told(capsys, arguments, problem):
    assert main(["bench", "scale", *arguments]) == 2
    assert problem in capsys.readouterr().err
