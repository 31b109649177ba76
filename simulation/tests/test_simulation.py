"""A fixed set of seeds keeps every promise; `headrace simulate` runs more of them.

With HEADRACE_FAULTS=full many more seeds run.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import pytest

from simulation.faults.faults import (
    OF_DISKS,
    OF_PROOF,
    OF_TRANSACTIONS,
    FaultKind,
)
from simulation.run import run_seed
from simulation.simulate import DEFAULT_SECONDS
from storage_engine.tests.sampling import ALL_FAULTS, in_full
from storage_engine.tools.cli import main

SEEDS = 400 if ALL_FAULTS else 10
DELETES_A_TOPIC = 37
"""A seed with the only kind of fault that the others do not have by default."""
STORIES = 8
"""Seeds below 0: each compound fault twice, alone."""
WITH_TRANSACTIONS = 200 if ALL_FAULTS else 3
"""Seeds that have transactions, too."""


@dataclass(frozen=True, slots=True)
class SeedSum:
    """Of seeds that all keep their promises."""

    events: int = 0
    simulated_ms: int = 0
    acknowledged: int = 0
    faults: Counter[FaultKind] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "SeedSum") -> "SeedSum":
        return SeedSum(
            self.events + other.events,
            self.simulated_ms + other.simulated_ms,
            self.acknowledged + other.acknowledged,
            self.faults + other.faults,
            self.counts + other.counts,
        )


def sum_of(
    pool: ProcessPoolExecutor,
    seeds: Iterable[int],
    *,
    seconds: int = DEFAULT_SECONDS,
    transactions: bool = False,
    typed: bool = False,
    proof: bool = False,
    disks: bool = False,
) -> SeedSum:
    """Of seeds that run in the process of the file: those of the command take as long to start as
    six seeds."""
    which = {"transactions": transactions, "typed": typed, "proof": proof, "disks": disks}
    total = SeedSum()
    for run in [pool.submit(run_seed, seed, seconds=seconds, **which) for seed in seeds]:
        seed = run.result()
        assert seed.failure is None, f"--seed {seed.seed}: {seed.rule}: {seed.failure}"
        total += SeedSum(
            seed.events,
            seed.simulated_ms,
            seed.acknowledged,
            seed.done,
            Counter({what.replace(" ", "_"): count for what, count in seed.counts.items()}),
        )
    return total


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "storage_engine.tools.cli", "simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_fixed_set_of_seeds_keeps_every_promise(pool):
    ran = sum_of(pool, range(-STORIES, SEEDS))
    assert ran.acknowledged > 50 * SEEDS
    if DELETES_A_TOPIC >= SEEDS:
        ran += sum_of(pool, [DELETES_A_TOPIC])
    assert {*ran.faults} == {*FaultKind} - {*OF_TRANSACTIONS, *OF_PROOF, *OF_DISKS}


def test_a_fixed_set_of_seeds_with_transactions_keeps_every_promise(pool):
    ran = sum_of(pool, range(WITH_TRANSACTIONS), transactions=True)
    assert ran.counts["transactions"] > 15 * WITH_TRANSACTIONS
    assert ran.counts["batches"] > 5 * WITH_TRANSACTIONS
    assert ran.counts["offset_commits"] > WITH_TRANSACTIONS
    assert ran.counts["copied_records"] > 10 * WITH_TRANSACTIONS
    assert ran.counts["compactions"] > 5 * WITH_TRANSACTIONS
    assert {*OF_TRANSACTIONS} <= {*ran.faults}


def failure_of(
    pool: ProcessPoolExecutor, seed: int, *, transactions: bool, only: list[int] | None
) -> str | None:
    """The promise that the seed breaks, and how; None when it keeps all."""
    run = pool.submit(
        run_seed, seed, seconds=DEFAULT_SECONDS, transactions=transactions, only=only
    ).result()
    return None if run.failure is None else f"{run.rule}: {run.failure}"


FOUND = {
    200523: [8, 19, 20],  # a lost answer about the ISR, test_isr_writer
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
    0: [1007],  # a first pass of compaction, its gaps passed for damage: test_follower_appends_gaps
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


def test_seeds_run_the_same_in_every_process_of_the_command(pool):
    # With transactions and typed topics, which take three times as long, in full.
    plain = () if ALL_FAULTS else ("--no-transactions", "--no-typed")
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
    plain = ("--no-transactions", "--no-typed", "--no-proof", "--no-disks")
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
