"""`headrace bench one-host`: what is refused before anything starts."""

import pytest

from storage_engine.tools.cli import main


@pytest.mark.parametrize("brokers", ["0", "2,1", "1,1", "17"])
def test_numbers_of_brokers_that_cannot_be_right_are_told(capsys, brokers):
    assert main(["bench", "one-host", "--brokers", brokers]) == 2
    problem = f"--brokers {brokers} is impossible; give numbers from 1 to 16 that rise"
    assert problem in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_told(capsys):
    assert main(["bench", "one-host", "--dir", "/no/such"]) == 2
    assert "'/no/such' is not a directory" in capsys.readouterr().err
