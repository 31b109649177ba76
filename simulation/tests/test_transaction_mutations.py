"""Deliberate bugs in transactions and batch commits are found by the fixed set of seeds, as in
`test_mutations`."""

import pytest

from simulation.simulate import DEFAULT_SECONDS
from simulation.tests.seed_sums import check_caught
from simulation.tests.transaction_mutations import (
    TRANSACTION_MUTATIONS,
    transaction_failure_of,
)
from storage_engine.tests.sampling import a_third

pytestmark = pytest.mark.slow

SEEDS = range(40)

CAUGHT: dict[str, tuple[int, str]] = {
    "batches_acknowledged_before_they_are_replicated": (
        0,
        "what a coordinator acknowledges is committed",
    ),
    "commits_acknowledged_before_they_are_replicated": (
        0,
        "what a coordinator acknowledges is committed",
    ),
    "markers_not_sent_again_by_the_next_coordinator": (
        1,
        "every transaction ends, and readers come to its end",
    ),
    "ends_of_a_batch_not_sent_again_by_the_next_coordinator": (
        1,
        "every transaction ends, and readers come to its end",
    ),
    "zombies_go_on_writing": (8, "nothing of a transaction follows its end"),
    "zombies_go_on_committing": (8, "a transaction ends in one way, everywhere"),
    "open_transactions_ignored_by_the_last_stable_offset": (
        0,
        "the last stable offset is not above what is undecided",
    ),
    "unreplicated_markers_ignored_by_the_last_stable_offset": (
        0,
        "the last stable offset is not above what is undecided",
    ),
    "replays_not_recognised": (1, "a replay is told that its batch is committed"),
    "members_that_are_lost_not_missed": (8, "a sink has each record of its source once"),
    "guards_outlive_markers": (
        3,
        "an idempotent producer's batches are committed once and in order",
    ),
    "offsets_not_checked_again_after_they_have_waited": (
        22,
        "a transaction ends before the next one of its producer begins",
    ),
    "offsets_of_aborted_transactions_count": (
        42,
        "a group reads offsets that are committed, and nothing else",
    ),
    "heartbeats_that_do_not_restart_the_clock": (
        32,
        "a member is lost to its timeout, or because somebody gives it up",
    ),
    "members_given_up_with_all_others_of_their_query": (
        11,
        "a member is lost to its timeout, or because somebody gives it up",
    ),
    "members_given_up_stay_open": (5, "a transaction ends in one way, everywhere"),
    "origins_not_moved_with_the_commit": (42, "a sink has each record of its source once"),
    "origins_that_have_moved_not_noticed": (42, "a sink has each record of its source once"),
    "compaction_forgets_unfinished_ends": (37, "a compacted log says what was written"),
}
"""The first seed that caught each, and the promise it found broken."""


def test_every_mutation_has_the_seed_that_catches_it():
    assert set(CAUGHT) == set(TRANSACTION_MUTATIONS)


@pytest.mark.parametrize("name", a_third(CAUGHT))
def test_a_mutation_is_caught(pool, name):
    first, _ = CAUGHT[name]
    check_caught(
        lambda seed: pool.submit(transaction_failure_of, name, seed, DEFAULT_SECONDS), first, SEEDS
    )
