"""The errors of the comparison of Avro, before anything starts."""

import pytest

from storage_engine.tools.cli import main


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--rows", "5"], "--rows is 5"),
        (["--dir", "/no/such"], "'/no/such' is not a directory"),
    ],
)
def test_arguments_that_cannot_be_right_are_told_before_anything_starts(capsys, arguments, problem):
    assert main(["bench", "avro", *arguments]) == 2
    assert problem in capsys.readouterr().err
