"""The benchmark of the log: what it prints and leaves behind, not how fast the machine is."""

import json
import subprocess
import sys

import pytest

from benchmarks.support.rounds import Goal, alone, compare
from storage_engine.tests.sampling import in_full
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


@in_full
def test_a_broker_is_measured_too(tmp_path, capsys):
    options = ["--partitions", "20", "--producers", "3", "--seconds", "1", "--dir", str(tmp_path)]
    assert main(["bench", "log", *SMALL, *options]) == 0
    table = capsys.readouterr().out
    for what in (
        "20 partitions closed in order: opened by the log alone, s",
        "20 partitions closed in order: RSS of the idle broker, MiB",
        "idle broker: 1000 idle connections, MiB",
        "broker after 12 MiB in and out: RssAnon, MiB",
        "3 durable producers, 1 partition(s): batches per fsync call",
        "3 durable producers, 3 partition(s): batches per round of fsyncs",
    ):
        assert what in table
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_told_to_stop_leaves_nothing_behind(tmp_path):
    command = [sys.executable, "-m", "storage_engine.tools.cli", "bench", "log", "--no-broker"]
    with subprocess.Popen([*command, "--dir", str(tmp_path)], stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        assert run.stderr.readline().startswith(b"1: append")
        assert list(tmp_path.iterdir())
        run.terminate()
        run.communicate()
    assert run.returncode
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--bytes", "1000"], "--bytes and --large-log must be"),
        (["--dir", "/does/not/exist"], "is not a directory; create it first"),
    ],
)
def test_arguments_that_can_not_be_right_are_refused(options, complaint, capsys):
    assert main(["bench", "log", *options]) == 2
    assert complaint in capsys.readouterr().err


def test_a_comparison_is_the_median_of_the_ratios_of_its_rounds():
    ours, limits = iter([0.0, 1.0, 9.0, 2.0]), iter([1.0, 2.0, 3.0, 4.0])
    found = compare(
        "x", lambda: next(ours), lambda: next(limits), rounds=3, goal=Goal(least=0.6, most=1)
    )
    assert (found.measured, found.limit, found.ratio) == (2.0, 3.0, 0.5)
    assert (found.goal, found.met) == ("0.6 to 1", False)


def test_a_goal_without_a_limit_is_for_the_figure_itself():
    assert alone("x", 5.0, goal=Goal(most=5.0)).met is True
    assert alone("x", 5.1, goal=Goal(most=5.0)).met is False
    assert alone("x", 5.1).met is None
