"""Deliberate bugs are found by the fixed set of seeds: each is caught by the seed named here, the
first that does, as the breach of the promise named here.

A finding by any rule would do; naming it shows that a bug is found for what it is.
"""

import pytest

from storage_engine.tests.simulation.mutations import MUTATIONS, failure_of
from storage_engine.tools.simulate import DEFAULT_SECONDS, workers

CAUGHT = {}


@pytest.fixture(scope="module")
def pool():
    with workers(2) as processes:
        yield processes


def test_every_mutation_has_the_seed_that_catches_it():
    assert set(CAUGHT) == set(MUTATIONS)


@pytest.mark.parametrize("name", CAUGHT)
def test_a_mutation_is_caught(pool, name):
    seed, rule = CAUGHT[name]
    assert pool.submit(failure_of, name, seed, DEFAULT_SECONDS).result() == rule
