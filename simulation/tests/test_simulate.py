"""`headrace simulate`: the seeds and faults that it runs."""

import json
import subprocess
import sys

import pytest

from simulation.tests.seed_sums import sum_of
from storage_engine.tests.sampling import ALL_FAULTS
from storage_engine.tools.cli import main

pytestmark = pytest.mark.slow


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "storage_engine.tools.cli", "simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_seeds_run_the_same_in_every_process_of_the_command(pool):
    # With transactions and typed topics, which take three times as long, in full.
    plain = ("--no-groups", *(() if ALL_FAULTS else ("--no-transactions", "--no-typed")))
    of_seeds = ("--start", "6", "--seeds", "2", "--jobs", "2", "--seconds", "1")
    done = simulate(*of_seeds, *plain, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    more = {"transactions": ALL_FAULTS, "typed": ALL_FAULTS, "proof": True, "disks": True}
    here = sum_of(pool, (6, 7), seconds=1, **more)
    assert (told["seeds"], told["failures"]) == (2, [])
    assert told["events"] == here.events
    assert told["simulated_ms"] == here.simulated_ms
    assert told["acknowledged"] == here.acknowledged
    assert told["faults"] == {kind.value: count for kind, count in here.faults.items()}
    assert here.counts.items() <= told.items()


def test_only_the_faults_that_were_asked_for_take_place(capsys):
    more = ("--faults", "1,2", "--json")
    plain = ("--no-transactions", "--no-typed", "--no-proof", "--no-disks", "--no-groups")
    assert main(["simulate", *plain, "--seed", "7", "--seconds", "5", *more]) == 0
    assert sum(json.loads(capsys.readouterr().out)["faults"].values()) <= 2


def test_a_list_of_faults_that_is_none_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--seed", "7", "--faults", "one"])
    assert ended.value.code == 2
    assert "'one' is not a list of numbers" in capsys.readouterr().err


def test_faults_without_their_seed_are_wrong_usage(capsys):
    assert main(["simulate", "--seeds", "2", "--faults", "1"]) == 2
    assert "--faults needs --seed" in capsys.readouterr().err
