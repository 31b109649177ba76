"""A fixed set of seeds keeps every promise whose brokers have two log dirs each: replicas
move between them, directories and their syncs fail, records are deleted, clocks are set, and power
is lost during all of it. Deliberate bugs are found by such seeds.

Other seeds have one directory each, so that they keep their course.
"""

import pytest

from simulation.faults.faults import OF_DISKS
from simulation.simulate import DEFAULT_SECONDS
from simulation.tests.disk_mutations import MUTATIONS, failure_of
from simulation.tests.seed_sums import sum_of
from storage_engine.tests.sampling import ALL_FAULTS

SEEDS = 300 if ALL_FAULTS else 4
WITH_TRANSACTIONS = 100 if ALL_FAULTS else 1

CAUGHT: dict[str, tuple[int, str]] = {
    "what_is_in_the_page_cache_counts_as_written": (
        14,
        "every member of the ISR holds what is committed",
    ),
    "transactions_that_nobody_knows_stay_open": (
        22,
        "every transaction ends, and readers come to its end",
    ),
}
"""The first seed that catches each, and the promise it finds broken."""


@pytest.mark.slow
def test_a_fixed_set_of_seeds_with_failing_disks_keeps_every_promise(pool):
    ran = sum_of(pool, range(SEEDS), disks=True)
    assert ran.acknowledged > 30 * SEEDS
    assert {*OF_DISKS} <= {*ran.faults}


@pytest.mark.slow
def test_seeds_with_failing_disks_and_transactions_keep_every_promise(pool):
    ran = sum_of(pool, range(WITH_TRANSACTIONS), transactions=True, typed=True, disks=True)
    assert ran.counts["transactions"] > 5 * WITH_TRANSACTIONS


def test_every_mutation_has_the_seed_that_catches_it():
    assert set(CAUGHT) == set(MUTATIONS)


@pytest.mark.parametrize("name", CAUGHT)
def test_a_mutation_of_what_failures_leave_is_caught(pool, name):
    seed, promise = CAUGHT[name]
    assert pool.submit(failure_of, name, seed, DEFAULT_SECONDS).result() == promise
