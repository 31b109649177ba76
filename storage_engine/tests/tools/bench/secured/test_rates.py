"""The rates of secured listeners beside plain ones."""

import pytest

from benchmarks.secured.rates import Round, figure_of
from benchmarks.support.rounds import Goal
from storage_engine.tools.cli import main


def test_a_folder_that_is_not_there_is_an_error_of_one_line(tmp_path, capsys):
    assert main(["bench", "secured", "--dir", str(tmp_path / "absent")]) == 2
    assert "is not a directory; create it first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("measured", "least", "is_met"),
    [(70.0, None, True), (50.0, None, False), (50.0, 0.4, True), (50.0, 0.55, False)],
)
def test_a_ratio_meets_its_goal_also_when_it_is_that_of_apache_kafka(measured, least, is_met):
    rounds = {"tls": [Round(measured, 3.0)] * 3, "plain": [Round(100.0, 2.0)] * 3}
    figure = figure_of("fetch", rounds, "tls", "plain", goal=Goal(least=0.6), least=least)
    assert [figure.ratio, figure.cpu_ratio, figure.met] == [measured / 100, 1.5, is_met]
    assert figure.goal == (">= 0.6" if least is None else f">= 0.6 or {least}")
