"""Random faults around the real controller and leaders: what must always hold, and what must come
once the faults stop. Source: R-CTL2 to R-CTL6, R-REP9."""

import pytest

from storage_engine.core.control import partition_elections
from storage_engine.tests.core.control.cluster_world import World
from storage_engine.tests.sampling import seeds


def live(seed: int, happenings: int, **options) -> World:
    world = World(seed, **options)
    for _ in range(happenings):
        world.happen()
    return world


FOUND = (548, 10662, 31644, 40080, 70088)
"""Each has shown a fault of the controller, now a test of its own in test_controller or
test_planned_changes_deletion; the last one logs of topics that are gone (test_orphaned_logs)."""


@pytest.mark.parametrize("seed", [*seeds(40), *FOUND])
def test_no_acknowledged_record_is_lost_and_the_cluster_heals(seed):
    world = live(seed, 1500)
    world.settle()
    world.check_settled()


@pytest.mark.parametrize("seed", seeds(15))
def test_whatever_comes_between_the_turns_of_elections_loses_nothing(seed):
    world = live(seed, 1500, elections_per_turn=1)
    world.settle()
    world.check_settled()


@pytest.mark.parametrize("seed", seeds(8))
def test_a_silent_follower_leaves_the_isr_and_returns(seed):
    world = live(seed, 500)
    world.settle()
    for broker in world.brokers:
        world.check_laggards_leave(broker)


@pytest.mark.parametrize("seed", seeds(15))
def test_with_unclean_elections_the_cluster_heals_and_logs_agree(seed):
    world = live(seed, 1500, unclean=True)
    world.settle()
    world.check_settled()


@pytest.mark.parametrize("seed", range(3))
def test_records_are_acknowledged_in_spite_of_the_faults(seed):
    world = live(seed, 4000)
    assert sum(map(len, world.acknowledged.values())) > 50


@pytest.mark.parametrize("seed", [*seeds(25), 2504, 2552, 3287])
def test_a_record_is_lost_with_the_power_only_when_all_of_the_isr_lost_it(seed):
    world = live(seed, 1500, power=True)
    world.settle()
    world.check_settled()


def test_some_partition_goes_on_after_all_of_its_isr_lost_power():
    assert any(live(seed, 2500, power=True).elected_with_loss for seed in range(5))


def test_without_suspects_a_broker_that_lost_its_tail_leads(monkeypatch):
    """The rule taken away: the random world finds it."""
    monkeypatch.setattr(partition_elections, "suspects", lambda state, brokers: frozenset())
    with pytest.raises(AssertionError, match=r"lost its tail|acknowledged record \d+"):
        for seed in range(80):
            live(seed, 1500, power=True).settle()
