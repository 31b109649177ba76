"""Deliberate bugs are found by the fixed set of seeds.

Named is the first seed that caught each, and the promise it found broken. A change of the brokers
gives a seed other events, so where the named seed finds nothing any more the whole set is searched.
"""

import pytest

from simulation.simulate import DEFAULT_SECONDS
from simulation.tests.mutations import MUTATIONS, failure_of
from simulation.tests.seed_sums import check_caught
from storage_engine.tests.sampling import a_third

pytestmark = pytest.mark.slow

SEEDS = range(-8, 40)
"""The fixed set, as in test_run_seeds."""

CAUGHT: dict[str, tuple[int, str]] = {
    "truncate_to_the_high_watermark": (0, "every member of the ISR holds what is committed"),
    "no_truncation_at_all": (-4, "leader epochs in a log never go back"),
    "isr_without_the_pending_member": (-7, "every member of the ISR holds what is committed"),
    "laggards_stay": (0, "a laggard leaves the ISR"),
    "nobody_is_readmitted": (0, "a cluster without faults converges"),
    "acknowledged_before_the_isr_has_it": (0, "what acks=all acknowledged is committed"),
    "controller_epoch_ignored": (4, "what brokers tell clients of leaders never goes back"),
    "number_of_orders_ignored": (275, "what brokers tell clients of leaders never goes back"),
    "leader_epoch_ignored": (367, "leader epochs never go back"),
    "leader_epoch_of_fetches_ignored": (
        -1,
        "a high watermark is the end of a batch in the log",
    ),
    "progress_kept_over_a_leadership_that_was_missed": (
        26,
        "every member of the ISR holds what is committed",
    ),
    "reassignment_finished_early": (1, "a reassignment ends when its targets have been in sync"),
    "elected_outside_the_isr": (2, "only members of the ISR are elected"),
    "lost_answer_taken_for_a_refusal": (19, "every member of the ISR holds what is committed"),
    "high_watermark_lost_on_restart": (0, "the high watermark survives a restart"),
    "served_above_the_high_watermark": (0, "consumers see only what is below the high watermark"),
    "lease_ignored": (8, "a leader without its session takes nothing"),
    "fence_ignored": (8, "a leader without its session takes nothing"),
    "idempotent_state_not_kept_by_followers": (
        0,
        "an idempotent producer's batches are committed once and in order",
    ),
    "old_progress_of_followers_counts_for_a_new_leader": (
        -6,
        "every member of the ISR holds what is committed",
    ),
    "min_insync_replicas_ignored": (1, "acks=all means min.insync.replicas"),
    "flush_before_ack_ignored": (0, "every producer is acknowledged"),
    "leader_epoch_kept_when_the_isr_shrinks": (0, "one leader per epoch"),
    "isr_answers_of_an_old_epoch_accepted": (
        -2,
        "every member of the ISR holds what is committed",
    ),
    "incarnations_ignored": (-3, "every member of the ISR holds what is committed"),
    "lost_tails_ignored": (2, "who lost its power leads only when all of the ISR did"),
}


def test_every_mutation_has_the_seed_that_catches_it():
    assert set(CAUGHT) == set(MUTATIONS)


@pytest.mark.parametrize("name", a_third(CAUGHT))
def test_a_mutation_is_caught(pool, name):
    first, _ = CAUGHT[name]
    check_caught(lambda seed: pool.submit(failure_of, name, seed, DEFAULT_SECONDS), first, SEEDS)
