"""Random faults around the real coordinator of micro-batches: what must always hold, and what must
come once the faults stop; and that the world notices when a rule is missing. Source: R-SPARK2."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.core.transactions.micro_batch_commits import MicroBatchCommits
from storage_engine.tests.core.transactions.batch_world import World
from storage_engine.tests.core.transactions.batch_world_parts import Violation
from storage_engine.tests.core.transactions.missing_rules import (
    AbortsWhatIsListed,
    AnswersAtOnce,
    CommitsWhatIsOpen,
    DoesNotCarry,
    DoesNotWait,
    DropsAtOnce,
    ForgetsOrigins,
    ForgetsTheBatchId,
    ForgetsTheFirstRun,
    HasNoTimeout,
    KeepsPartitionsInMemory,
    LooksAtDrainedFirst,
    with_rules,
)

HAPPENINGS = 2500
SEEDS_TRIED = 60
"""Until a missing rule shows; most show within three."""


def live(seed: int, factory=None, *, keyed: bool = False, happenings: int = HAPPENINGS) -> World:
    world = World(seed, keyed=keyed) if factory is None else World(seed, factory, keyed=keyed)
    for _ in range(happenings):
        world.happen()
    world.settle()
    world.check()
    return world


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_every_batch_is_committed_once_whole_and_in_order(seed):
    live(seed)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_two_queries_with_origins_double_and_lose_no_row(seed):
    live(seed, keyed=True)


def test_batches_are_committed_in_spite_of_the_faults():
    worlds = [World(seed) for seed in range(8)]
    for world in worlds:
        for _ in range(HAPPENINGS):
            world.happen()
    assert sum(world.logged["a"] + 1 for world in worlds) >= 10
    assert sum(world.lost["a"] for world in worlds) > 0, "attempts were lost on the way"
    assert sum(world.replaced for world in worlds) > 0, "and drivers were replaced"
    assert sum(world.epoch for world in worlds) > 80, "and coordinators"


@pytest.mark.parametrize(
    "rules",
    [
        AbortsWhatIsListed,
        CommitsWhatIsOpen,
        DoesNotCarry,
        DoesNotWait,
        DropsAtOnce,
        ForgetsTheBatchId,
        ForgetsTheFirstRun,
        HasNoTimeout,
        KeepsPartitionsInMemory,
        LooksAtDrainedFirst,
    ],
)
def test_a_missing_rule_shows(rules):
    assert shows(with_rules(rules), keyed=False)


def test_a_missing_rule_on_origins_shows():
    assert shows(with_rules(ForgetsOrigins), keyed=True)


def test_an_answer_before_replication_shows():
    assert shows(with_rules(MicroBatchCommits, AnswersAtOnce), keyed=False)


def shows(factory, *, keyed: bool) -> bool:
    for seed in range(SEEDS_TRIED):
        try:
            live(seed, factory, keyed=keyed, happenings=1500)
        except Violation:
            return True
    return False
