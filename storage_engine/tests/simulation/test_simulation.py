"""A fixed set of seeds keeps every promise; `headrace simulate` runs more of them.

With HEADRACE_FAULTS=full many more seeds run.
"""

import json
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from storage_engine.simulation.faults.faults import OF_PROOF, OF_TRANSACTIONS, FaultKind
from storage_engine.simulation.run import run_seed
from storage_engine.tests.sampling import ALL_FAULTS, in_full
from storage_engine.tools.cli import main
from storage_engine.tools.commands.simulate import DEFAULT_SECONDS

SEEDS = 400 if ALL_FAULTS else 16
DELETES_A_TOPIC = 37
"""A seed with the only kind of fault that the others do not have by default."""
STORIES = 8
"""Seeds below 0: each compound fault twice, alone."""
WITH_TRANSACTIONS = 200 if ALL_FAULTS else 4
"""Seeds that have transactions, too."""


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "storage_engine.tools.cli", "simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_fixed_set_of_seeds_keeps_every_promise():
    seeds = STORIES + SEEDS
    plain = ("--no-transactions", "--no-typed", "--no-proof")
    result = outcome(*plain, "--start", str(-STORIES), "--seeds", str(seeds))
    assert result["seeds"] == seeds
    assert result["acknowledged"] > 50 * SEEDS
    kinds = {*result["faults"]}
    if DELETES_A_TOPIC >= SEEDS:
        kinds |= {*outcome(*plain, "--seed", str(DELETES_A_TOPIC))["faults"]}
    assert kinds == {kind.value for kind in {*FaultKind} - {*OF_TRANSACTIONS, *OF_PROOF}}


@pytest.mark.slow
def test_a_fixed_set_of_seeds_with_transactions_keeps_every_promise():
    result = outcome("--no-typed", "--no-proof", "--seeds", str(WITH_TRANSACTIONS))
    assert result["transactions"] > 15 * WITH_TRANSACTIONS
    assert result["batches"] > 5 * WITH_TRANSACTIONS
    assert result["offset_commits"] > WITH_TRANSACTIONS
    assert result["copied_records"] > 10 * WITH_TRANSACTIONS
    assert result["compactions"] > 5 * WITH_TRANSACTIONS
    assert {kind.value for kind in OF_TRANSACTIONS} <= set(result["faults"])


def outcome(*arguments: str) -> Any:
    """Of seeds that all keep their promises."""
    done = simulate(*arguments, "--jobs", "2", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["failures"] == []
    return result


def failure_of(
    pool: ProcessPoolExecutor, seed: int, *, transactions: bool, only: list[int] | None
) -> str | None:
    """The promise that the seed breaks, and how; None when it keeps all."""
    run = pool.submit(
        run_seed, seed, seconds=DEFAULT_SECONDS, transactions=transactions, only=only
    ).result()
    return None if run.failure is None else f"{run.rule}: {run.failure}"


FOUND = {
    200523: [8, 19, 20],  # a lost answer about the ISR, test_lost_isr_answer
    200529: [1, 18, 22],  # a deletion that the power took back, test_orphaned_logs
    200568: [10, 12, 13, 16],  # a fault of the checker: a log deleted and another made in one event
    200870: [5, 8, 20, 23, 24, 32],  # high watermarks after a loss of power, test_log_dir
    213188: [11, 12, 13, 15],  # a topic as it was before it grew, test_controller
    201513: [13, 14, 18],  # the checker's again: a topic made while a broker without power counted
    224861: [1, 3],  # the checker's: a batch acknowledged after one that had it had lost its power
    223667: [8, 10, 11],  # the checker's: a registration that arrived after the power was lost
}
"""Seeds that have failed, without transactions, and the faults that it took."""


FOUND_WITH_TRANSACTIONS = {
    0: [1007],  # a first pass of compaction, whose gaps passed for damage after a kill, test_gaps
    17: None,  # offsets behind the end of their transaction, test_commits_that_wait
    33: None,  # the checker's: a batch told to be committed before its markers were written
    5149: [3, 4, 5, 6, 9, 10, 15, 16, 23],  # an epoch's end in a gap, test_compacted_epochs
    539: None,  # the checker's: with fast producers all logs hardly ever ended alike at one moment
}
"""With transactions; None: all faults of the seed."""

IN_FULL = {0, 17, 33, 539}
"""No fault of the brokers, or one whose own test builds the case directly."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[in_full] if seed in IN_FULL else [])
        for seed in FOUND_WITH_TRANSACTIONS
    ],
)
def test_a_seed_that_has_failed_with_transactions_keeps_every_promise(pool, seed):
    failure = failure_of(pool, seed, transactions=True, only=FOUND_WITH_TRANSACTIONS[seed])
    assert failure is None, failure


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_has_failed_keeps_every_promise(pool, seed):
    failure = failure_of(pool, seed, transactions=False, only=FOUND[seed])
    assert failure is None, failure


def test_a_seed_runs_the_same_in_every_process():
    # With transactions and typed topics, which take three times as long, in full.
    plain = () if ALL_FAULTS else ("--no-transactions", "--no-typed")
    first, second = (simulate("--seed", "7", "--seconds", "1", *plain, "--json") for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    told = [json.loads(done.stdout) for done in (first, second)]
    for result in told:
        del result["elapsed_s"]
    assert told[0] == told[1]


def test_only_the_faults_that_were_asked_for_take_place(capsys):
    more = ("--faults", "1,2", "--json")
    plain = ("--no-transactions", "--no-typed", "--no-proof")
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
