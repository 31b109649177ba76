"""`headrace down`."""

from storage_engine.tests.tools.local.made_cluster import stopped_cluster
from storage_engine.tools.cli import main


def test_it_is_no_error_when_nothing_runs(tmp_path, capsys):
    stopped_cluster(tmp_path)
    assert main(["down", "--dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"nothing was running in {tmp_path}\n"
