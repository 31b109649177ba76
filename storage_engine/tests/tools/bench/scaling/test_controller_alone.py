"""A controller alone: its figures at a small size."""

import json

from storage_engine.tools.cli import main


def test_a_controller_alone_has_figures_of_each_step(capsys):
    arguments = ["--controller-alone", "--partitions", "300", "--brokers", "4", "--json"]
    assert main(["bench", "scale", *arguments]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert len(figures) > 2
    assert len({figure["what"] for figure in figures}) == len(figures)
    for figure in figures:
        known = [each for each in figure.values() if isinstance(each, int | float)]
        assert known and min(known) > 0, figure
