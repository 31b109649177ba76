"""The benchmarks of failover and replication: what they print and leave behind, not how fast the
machine is."""

import json

import pytest

from storage_engine.tests.sampling import in_full
from storage_engine.tools.cli import main


@in_full
def test_every_figure_of_a_failover_is_told(tmp_path, capsys):
    options = ["--partitions", "6", "--rounds", "1", "--session-timeout-ms", "2000"]
    assert main(["bench", "failover", *options, "--dir", str(tmp_path), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    figures = {result["what"]: result for result in results}
    assert len(figures) == 6
    killed = "broker killed that led 6 partitions"
    stopped = "broker stopped that led 6 partitions, steady producer"
    for what, goal in (
        (f"{killed}: until all of them accept acks=all, s", "<= 3.0"),
        (f"{killed}: from the watch to the last leader in metadata, s", "<= 3.0"),
        (f"{stopped}: longest gap between acks, ms; limit: before", "<= 500.0"),
        ("controller killed, 6 partitions: until the others name a new one, s", "<= 3.0"),
        ("controller killed, 6 partitions: until that has created a topic, s", "<= 3.0"),
    ):
        assert figures[what]["measured"] > 0
        assert figures[what]["goal"] == goal
        assert figures[what]["met"] is not None
    assert figures[f"{stopped}: failed sends"]["measured"] == 0
    assert not list(tmp_path.iterdir()), "it cleans up after itself"


@in_full
def test_every_figure_of_replication_stands_beside_its_limit(tmp_path, capsys):
    options = ["--bytes", "8388608", "--cold-bytes", "33554432", "--rounds", "1"]
    assert main(["bench", "replication", *options, "--dir", str(tmp_path), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["goal"] for result in results] == [">= 0.25", ">= 0.5", "<= 3.0"]
    for result in results:
        assert result["measured"] > 0
        assert result["limit"] > 0
        assert result["ratio"] > 0
        assert result["met"] is not None
    assert not list(tmp_path.iterdir()), "it cleans up after itself"


@in_full
def test_kills_lose_nothing_and_every_gap_is_told(tmp_path, capsys):
    options = ["--rounds", "1", "--partitions", "6", "--rows", "leader,controller,partitions"]
    assert main(["bench", "kills", *options, "--dir", str(tmp_path), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["goal"] for result in results] == [
        "<= 1.0", "<= 1.5", "<= 0.0", "<= 0.0", "<= 0.0", "<= 1.5",
    ]  # fmt: skip
    assert [result["measured"] for result in results[2:5]] == [0, 0, 0]
    assert not list(tmp_path.iterdir()), "it cleans up after itself"


@in_full
def test_a_drain_stands_beside_the_time_before(tmp_path, capsys):
    options = ["--partitions", "4", "--mib", "1", "--seconds", "1", "--dir", str(tmp_path)]
    assert main(["bench", "drain", *options, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    goals = [result["goal"] for result in results if result["goal"]]
    assert goals == ["<= 3.0", "<= 0.0", "<= 0.0", "<= 0.0", "<= 0.0"]
    assert all(result["limit"] > 0 for result in results[:3])
    phases = {result["what"].partition(",")[0] for result in results[3:-5]}
    assert phases >= {"leaders moved", "replicas moved", "after the drain"}
    assert all(result["measured"] > 0 for result in results[3:-4])
    assert [result["measured"] for result in results[-4:]] == [0, 0, 0, 0]
    assert not list(tmp_path.iterdir()), "it cleans up after itself"


@in_full
def test_every_step_of_scale_is_told(tmp_path, capsys):
    options = ["--partitions", "12", "--dir", str(tmp_path), "--json"]
    assert main(["bench", "scale", *options]) == 0
    results = json.loads(capsys.readouterr().out)
    steps = [result for result in results if result["amount"] is None]
    assert len(steps) == 12
    for step in steps:
        assert step["seconds"] > 0
        assert step["brokers_cpu_s"] > 0
    amounts = {result["unit"]: result["amount"] for result in results if result["unit"]}
    assert set(amounts) == {"bytes", "MiB", "files and sockets", "ms"}
    assert amounts["files and sockets"] > 12
    assert not list(tmp_path.iterdir()), "it cleans up after itself"


def test_a_controller_alone_is_measured_at_any_size(capsys):
    options = ["--controller-alone", "--partitions", "60", "--brokers", "20", "--json"]
    assert main(["bench", "scale", *options]) == 0
    results = json.loads(capsys.readouterr().out)
    amounts = {result["what"]: result["amount"] for result in results}
    # UpdateMetadata and LeaderAndIsr to each broker; then to those that are left.
    assert amounts["new controller: compares all, tells all brokers: requests"] == 2 * 20
    assert amounts["a broker is lost: requests"] >= 19


def test_what_idle_brokers_cost_is_told(tmp_path, capsys):
    options = ["--partitions", "6", "--settle", "2", "--seconds", "2", "--dir", str(tmp_path)]
    assert main(["bench", "idle", *options, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["goal"] for result in results if result["goal"]] == ["<= 1.0", "<= 60.0"]
    assert all(result["measured"] > 0 for result in results[:5])
    assert not list(tmp_path.iterdir()), "it cleans up after itself"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["replication", "--bytes", "1000"], "--bytes and --cold-bytes must be"),
        (["replication", "--dir", "/does/not/exist"], "is not a directory; create it first"),
        (["failover", "--dir", "/does/not/exist"], "is not a directory; create it first"),
        (["idle", "--dir", "/does/not/exist"], "is not a directory; create it first"),
        (["kills", "--dir", "/does/not/exist"], "is not a directory; create it first"),
        (["drain", "--dir", "/does/not/exist"], "is not a directory; create it first"),
        (["kills", "--rows", "leader,cat"], "there is no row 'cat'"),
        (["scale", "--dir", "/does/not/exist"], "is not a directory; create it first"),
        (["scale", "--partitions", "100001"], "--partitions must be at most 100000"),
        (["scale", "--brokers", "5"], "--brokers is for --controller-alone"),
        (["scale", "--controller-alone", "--brokers", "2"], "--brokers must be at least 3"),
    ],
)
def test_arguments_that_can_not_be_right_are_refused(arguments, complaint, capsys):
    assert main(["bench", *arguments]) == 2
    assert complaint in capsys.readouterr().err
