"""`headrace bench groups`: what is refused before anything starts."""

import pytest

from storage_engine.tools.cli import main


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--members", "10", "--partitions", "9"], "--partitions is 9; give as many as --members"),
        (["--classic-members", "999"], "--classic-members is 999; give 1000 or more"),
        (["--dir", "/no/such"], "'/no/such' is not a directory"),
        (["--only", "heartbeats", "--many", "100000000"], "raise 'ulimit -Hn'"),
    ],
)
def test_arguments_that_cannot_be_right_are_told(capsys, arguments, problem):
    assert main(["bench", "groups", *arguments]) in (1, 2)
    assert problem in capsys.readouterr().err
