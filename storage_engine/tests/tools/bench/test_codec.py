"""The codec benchmark: what it prints, not how fast it is."""

import json

from storage_engine.tools.cli import main

SMALL = ["--records", "2000", "--rounds", "1"]


def test_benchmark_prints_every_step_of_both_kinds_of_records(capsys):
    assert main(["bench", "codec", *SMALL, "--compression", "zstd", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert len({result["records"] for result in results}) == 2
    ours = [result for result in results if result["by"] == "headrace"]
    assert [result["step"] for result in ours] == ["encode", "decode"] * 2
    assert all(result["records_per_s"] > 0 for result in results)
    assert all(result["goal_per_s"] is None for result in results)


def test_goals_stand_where_the_project_has_set_them(capsys):
    assert main(["bench", "codec", *SMALL]) == 0
    table = capsys.readouterr().out
    assert "5000000" in table
    assert "memcpy" in table


def test_records_of_typed_topics_are_measured_in_both_formats(capsys):
    assert main(["bench", "codec", "--typed", "--records", "1000", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    columns = [each for each in found if each["step"] == "records to columns"]
    assert [(each["rows"], each["by"]) for each in columns] == [
        (1000, "json"), (1000, "avro"), (10, "json"), (10, "avro"),
    ]  # fmt: skip
    assert all(each["us_per_batch"] > 0 for each in found)
