"""A fixed set of seeds with typed topics keeps every promise, and deliberate bugs are found by it.

Other seeds have no typed topics, so that they keep their course.
"""

import pytest

from simulation.simulate import DEFAULT_SECONDS
from simulation.tests.seed_sums import sum_of
from simulation.tests.typed_mutations import MUTATIONS, failure_of
from storage_engine.tests.sampling import ALL_FAULTS

SEEDS = 100 if ALL_FAULTS else 2

CAUGHT: dict[str, tuple[int, str]] = {
    "batches_of_other_schemas_are_taken": (
        0,
        "a typed topic takes only batches of its own schema",
    ),
    "converted_batches_are_not_checked_again": (
        0,
        "an idempotent producer's batches are committed once and in order",
    ),
    "compaction_forgets_which_rows_it_kept": (0, "a compacted log says what was written"),
    "filters_leave_out_the_largest_value": (
        0,
        "a typed topic has the rows that were written, at their offsets",
    ),
}
"""The first seed that catches each, and the promise that it finds broken."""


@pytest.mark.slow
def test_a_fixed_set_of_seeds_with_typed_topics_keeps_every_promise(pool):
    counts = sum_of(pool, range(SEEDS), typed=True).counts
    assert counts["typed_rows"] > 50 * SEEDS
    assert counts["typed_rows_read"] > 30 * SEEDS
    assert counts["typed_compactions"] > SEEDS


def test_every_mutation_has_the_seed_that_catches_it():
    assert set(CAUGHT) == set(MUTATIONS)


@pytest.mark.parametrize("name", CAUGHT)
def test_a_mutation_of_typed_topics_is_caught(pool, name):
    first, expected = CAUGHT[name]
    for seed in (first, *range(20)):
        rule = pool.submit(failure_of, name, seed, DEFAULT_SECONDS).result()
        if rule is not None:
            assert rule == expected
            return
    pytest.fail(f"no seed finds {name}")
