"""A fixed set of seeds whose brokers and watchers close the sessions of the dead keeps every
promise, also when whole machines fail, and deliberate bugs are found by it.

Other seeds let every session expire, so that they keep their course.
"""

import pytest

from simulation.faults.faults import OF_MACHINES, FaultKind
from simulation.faults.placement import placement_of
from simulation.simulate import DEFAULT_SECONDS
from simulation.tests.proof_mutations import MUTATIONS, failure_of
from simulation.tests.seed_sums import sum_of
from storage_engine.core.settings.settings import BY_PORT, BY_PROCESS
from storage_engine.tests.sampling import ALL_FAULTS

FIRST, SEEDS = (0, 200) if ALL_FAULTS else (115, 2)
"""By default some with much of it: proofs by processes and by ports, some of them false."""

FAILING_MACHINES = (
    {*OF_MACHINES}
    if ALL_FAULTS
    else {
        FaultKind.DARK_MACHINE,
        FaultKind.KILLED_UNITS,
        FaultKind.MACHINE_CUT_OFF,
        FaultKind.MACHINE_CUT_OFF_ONE_WAY,
    }
)
"""Faults that are among those seeds; by default watchers alone fail in the mutations' seeds."""

LIVING = "no living broker is taken for dead"
CAUGHT: dict[str, tuple[int, str]] = {
    "a_process_is_known_by_its_number_alone": (1, LIVING),
    "suspicion_is_taken_for_proof": (1, LIVING),
    "the_end_of_the_pipe_is_taken_for_proof": (2, LIVING),
    "the_newest_session_is_closed": (0, LIVING),
    "an_attempt_counts_as_done": (0, "a watcher ends once the session is gone"),
}
"""The first seed that catches each, and the promise it finds broken."""


@pytest.mark.slow
def test_a_fixed_set_of_seeds_with_proofs_of_death_keeps_every_promise(pool):
    ran = sum_of(pool, range(FIRST, FIRST + SEEDS), proof=True)
    assert ran.counts["closed_sessions"] >= SEEDS
    assert ran.counts["deposed"] >= SEEDS // 2
    assert ran.counts["closed_by_watchers"] >= SEEDS // 2
    assert ran.faults[FaultKind.REFUSED_PORT] >= SEEDS
    assert {*ran.faults} >= FAILING_MACHINES


def test_both_proofs_are_among_the_seeds():
    seeds = range(FIRST, FIRST + SEEDS)
    assert {placement_of(seed, 3).proof for seed in seeds} == {BY_PORT, BY_PROCESS}


def test_every_mutation_has_the_seed_that_catches_it():
    assert set(CAUGHT) == set(MUTATIONS)


@pytest.mark.parametrize("name", CAUGHT)
def test_a_mutation_of_the_proof_is_caught(pool, name):
    first, promise = CAUGHT[name]
    for seed in (first, *range(30)):
        rule = pool.submit(failure_of, name, seed, DEFAULT_SECONDS).result()
        if rule is not None:
            assert rule == promise
            return
    pytest.fail(f"no seed finds {name}")
