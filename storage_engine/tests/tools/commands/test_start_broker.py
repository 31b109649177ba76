"""`headrace start-broker`."""

from storage_engine.tests.tools.local.made_cluster import stopped_cluster
from storage_engine.tools.cli import main


def test_a_broker_that_is_not_in_the_cluster_is_told_with_those_that_are(tmp_path, capsys):
    stopped_cluster(tmp_path)
    assert main(["start-broker", "--dir", str(tmp_path), "2"]) == 1
    assert "no broker 2 in this cluster; its brokers are 1, 3" in capsys.readouterr().err
