"""Deliberate bugs in transactions and batch commits are found by the fixed set of seeds, as in
`test_mutations`."""

import pytest

from storage_engine.tests.simulation.transaction_mutations import (
    TRANSACTION_MUTATIONS,
    transaction_failure_of,
)
from storage_engine.tools.simulate import DEFAULT_SECONDS, workers

SEEDS = range(40)

CAUGHT: dict[str, tuple[int, str]] = {}
"""The first seed that caught each, and the promise it found broken."""


@pytest.fixture(scope="module")
def pool():
    with workers(2) as processes:
        yield processes


def test_every_mutation_has_the_seed_that_catches_it():
    assert set(CAUGHT) == set(TRANSACTION_MUTATIONS)


@pytest.mark.parametrize("name", CAUGHT)
def test_a_mutation_is_caught(pool, name):
    first, _ = CAUGHT[name]
    for seed in (first, *SEEDS):
        rule = pool.submit(transaction_failure_of, name, seed, DEFAULT_SECONDS).result()
        if rule is not None:
            # An exception that escapes would be a fault of the mutation itself.
            assert not rule.startswith("nothing escapes"), rule
            return
    pytest.fail(f"no seed in {SEEDS} finds {name}")
