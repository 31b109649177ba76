"""`headrace bench hosts` and `one-host`: what they print and leave behind, not how fast the machine
is."""

import json

import pytest

from benchmarks.machines.machines import why_not
from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main


@in_full
@pytest.mark.skipif(why_not() != "", reason="machines need namespaces")
def test_every_step_of_hosts_is_told(tmp_path, capsys):
    options = ["--brokers", "6", "--partitions", "60", "--session-timeout-ms", "6000"]
    assert main(["bench", "hosts", *options, "--dir", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    steps = [row for row in rows if row["seconds"] is not None]
    assert len(steps) == 23
    assert all(row["brokers_cpu_s"] >= row["controller_cpu_s"] >= 0 for row in steps)
    replicas, leaders = (row for row in rows if "the most even placement" in row["what"])
    assert (replicas["amount"], replicas["limit"], replicas["met"]) == (30, 30, True)
    assert (leaders["limit"], leaders["met"]) == (10, True)
    assert not list(tmp_path.iterdir()), "it cleans up after itself"


@in_full
def test_each_number_of_brokers_of_a_host_stands_beside_the_fewest(tmp_path, capsys):
    options = ["--brokers", "1,3", "--bytes", "16777216", "--rounds", "1"]
    assert main(["bench", "one-host", *options, "--dir", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    compared = [row for row in rows if row["ratio"] is not None]
    assert [row["what"].partition(":")[0] for row in compared] == [
        "1 broker, replication factor 1",
        "3 brokers, replication factor 1",
        "3 brokers, replication factor 1, one after the other",
        "3 brokers, replication factor 3",
    ]
    assert all(row["measured"] > 0 for row in rows)
    assert not list(tmp_path.iterdir()), "it cleans up after itself"
