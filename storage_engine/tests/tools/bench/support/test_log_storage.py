"""The figures of the log without a broker."""

import json

from storage_engine.tools.cli import main

SMALL = ["--bytes", "4194304", "--large-log", "12582912", "--rounds", "1"]


def test_every_figure_of_the_log_stands_beside_its_limit(tmp_path, capsys):
    assert main(["bench", "log", *SMALL, "--no-broker", "--dir", str(tmp_path), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert all(result["measured"] > 0 and result["limit"] > 0 for result in results)
    assert all(result["ratio"] > 0 for result in results)
    kinds = [result["what"].split(",")[0].split(";")[0] for result in results]
    for kind in ("append of 128 KiB batches", "append of 1 KiB batches", "recovery"):
        assert kind in kinds
    assert kinds.count("steady reads of 1 MiB") == 2, "segments of both sizes"
    assert "cold fetch of 1 MiB" in kinds
    assert [result["goal"] for result in results if "writev" in result["what"]] == [">= 0.6", None]
    assert all((result["met"] is None) == (result["goal"] is None) for result in results)
    assert not list(tmp_path.iterdir()), "it cleans up after itself"
