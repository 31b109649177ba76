"""`headrace bench kills`: what is refused before anything starts."""

import pytest

from storage_engine.tools.cli import main


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--rows", "leader,all"], "there is no row 'all'; there are leader, controller"),
        (["--rows", ""], "there is no row ''"),
        (["--dir", "/no/such"], "'/no/such' is not a directory"),
    ],
)
def test_arguments_that_cannot_be_right_are_told(capsys, arguments, problem):
    assert main(["bench", "kills", *arguments]) == 2
    assert problem in capsys.readouterr().err
