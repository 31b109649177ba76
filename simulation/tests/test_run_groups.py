"""A fixed set of seeds with members of a group keeps every promise. Other seeds have none, so that
they keep their course."""

import pytest

from simulation.tests.seed_sums import sum_of
from storage_engine.tests.sampling import ALL_FAULTS

SEEDS = 200 if ALL_FAULTS else 4


@pytest.mark.slow
def test_a_fixed_set_of_seeds_with_members_keeps_every_promise(pool):
    counts = sum_of(pool, range(SEEDS), groups=True).counts
    assert counts["joins"] > 8 * SEEDS
    assert counts["partitions_taken"] > 8 * SEEDS
    assert counts["commits_of_members"] > 4 * SEEDS
    assert counts["conversions"] >= SEEDS // 4
    assert counts["comparisons"] > 10 * SEEDS


def test_a_seed_with_everything_keeps_every_promise(pool):
    counts = sum_of(pool, [0], groups=True, transactions=True, typed=True).counts
    assert counts["conversions"] and counts["transactions"]
