"""The time of a decision about a right."""

import json

from storage_engine.tools.cli import main


def test_the_time_of_a_decision_is_told_for_each_way_to_it(capsys):
    assert main(["bench", "secured", "--only", "rules", "--rounds", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [figure["goal"] for figure in figures] == ["<= 2.0", "<= 50.0", "<= 50.0", "<= 50.0"]
    assert all(figure["measured"] > 0 and figure["met"] is not None for figure in figures)
