"""A fixed set of seeds keeps every promise; `headrace simulate` runs more of them.

With HEADRACE_FAULTS=full many more seeds run.
"""

from concurrent.futures import ProcessPoolExecutor

import pytest

from simulation.faults.faults import (
    OF_DISKS,
    OF_MACHINES,
    OF_PROOF,
    OF_TRANSACTIONS,
    FaultKind,
)
from simulation.run import run_seed
from simulation.simulate import DEFAULT_SECONDS
from simulation.tests.seed_sums import sum_of
from storage_engine.tests.sampling import ALL_FAULTS, in_full

SEEDS = 400 if ALL_FAULTS else 5
DELETES_A_TOPIC = 37
"""A seed with the only kind of fault that the others do not have by default."""
STORIES = 8 if ALL_FAULTS else 4
"""Seeds below 0: each compound fault alone, in full twice."""
WITH_TRANSACTIONS = range(200) if ALL_FAULTS else (3, 13)
"""Seeds that have transactions, too: with every fault of them."""


@pytest.mark.slow
def test_a_fixed_set_of_seeds_keeps_every_promise(pool):
    ran = sum_of(pool, range(-STORIES, SEEDS))
    assert ran.acknowledged > 50 * SEEDS
    if DELETES_A_TOPIC >= SEEDS:
        ran += sum_of(pool, [DELETES_A_TOPIC])
    assert {*ran.faults} == {*FaultKind} - {*OF_TRANSACTIONS, *OF_PROOF, *OF_DISKS, *OF_MACHINES}


def test_a_fixed_set_of_seeds_with_transactions_keeps_every_promise(pool):
    ran = sum_of(pool, WITH_TRANSACTIONS, transactions=True)
    seeds = len(WITH_TRANSACTIONS)
    assert ran.counts["transactions"] > 15 * seeds
    assert ran.counts["batches"] > 5 * seeds
    assert ran.counts["offset_commits"] > seeds
    assert ran.counts["copied_records"] > 10 * seeds
    assert ran.counts["compactions"] > 5 * seeds
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
IN_FULL = {*FOUND_WITH_TRANSACTIONS, 200523, 200529, 200870, 213188}
"""No fault of the brokers, or one whose own test builds the case directly."""


def marked(seeds):
    return [pytest.param(seed, marks=[in_full] if seed in IN_FULL else []) for seed in seeds]


@pytest.mark.slow
@pytest.mark.parametrize("seed", marked(FOUND_WITH_TRANSACTIONS))
def test_a_seed_that_has_failed_with_transactions_keeps_every_promise(pool, seed):
    failure = failure_of(pool, seed, transactions=True, only=FOUND_WITH_TRANSACTIONS[seed])
    assert failure is None, failure


@pytest.mark.parametrize("seed", marked(FOUND))
def test_a_seed_that_has_failed_keeps_every_promise(pool, seed):
    failure = failure_of(pool, seed, transactions=False, only=FOUND[seed])
    assert failure is None, failure
