"""Deliberate bugs of consumer groups are found by the fixed set of seeds: see `test_mutations`."""

import pytest

from simulation.simulate import DEFAULT_SECONDS
from simulation.tests.group_mutations import MUTATIONS, failure_of
from simulation.tests.seed_sums import check_caught
from storage_engine.tests.sampling import a_third

pytestmark = pytest.mark.slow

SEEDS = range(20)

CAUGHT: dict[str, tuple[int, str]] = {
    "partitions_given_before_their_owner_let_them_go": (
        0,
        "a partition has one owner in the coordinator's log",
    ),
    "partitions_free_once_their_owner_is_asked_for_them": (
        1,
        "a partition has one owner in the coordinator's log",
    ),
    "epochs_not_checked_on_commits": (4, "a commit with a stale epoch is never accepted"),
    "tombstones_of_assignments_forgotten": (
        0,
        "a partition has one owner in the coordinator's log",
    ),
    "tombstones_of_members_forgotten": (
        0,
        "a restored coordinator has the state that was acknowledged",
    ),
    "conversions_in_two_batches": (0, "a group is wholly of one kind"),
    "heartbeats_answered_before_their_records_are_replicated": (
        0,
        "what a group's coordinator acknowledges is committed",
    ),
    "targets_of_deleted_topics_kept": (0, "each partition of a subscribed topic has one member"),
    "sessions_that_end_too_early": (7, "no partition is held by two members at once"),
}
"""The first seed that caught each, and the promise it found broken."""


def test_every_mutation_has_the_seed_that_catches_it():
    assert set(CAUGHT) == set(MUTATIONS)


@pytest.mark.parametrize("name", a_third(CAUGHT))
def test_a_mutation_is_caught(pool, name):
    first, _ = CAUGHT[name]
    check_caught(lambda seed: pool.submit(failure_of, name, seed, DEFAULT_SECONDS), first, SEEDS)
