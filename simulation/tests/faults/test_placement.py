"""The machines of a seed's brokers follow from the seed."""

import random

from simulation.faults.placement import (
    FAILED_ATTEMPTS,
    LATE_MS,
    LATE_WATCHERS,
    NOTICED_MAX_MS,
    WATCHER_MS,
    placement_of,
)
from storage_engine.core.settings.settings import BY_PORT

SEEDS = range(200)


def test_a_seed_has_one_placement_and_seeds_differ():
    for seed in SEEDS:
        assert placement_of(seed, 3) == placement_of(seed, 3)
    found = [placement_of(seed, 3) for seed in SEEDS]
    assert {each.cuts_refuse for each in found} == {False, True}
    assert {each.noticed_max_ms for each in found} == set(NOTICED_MAX_MS)
    assert {each.late_watchers for each in found} == set(LATE_WATCHERS)
    assert {each.failed_attempts for each in found} == set(FAILED_ATTEMPTS)
    by_process = [each.machines for each in found if each.proof != BY_PORT]
    assert max(map(max, by_process)) == 2, "some share a machine, and know each other's processes"


def test_brokers_of_one_number_are_on_one_machine_that_notices_within_its_time():
    placement = placement_of(0, 4)
    machines = placement.make_machines(random.Random(1), random.Random(2))
    assert [machine.boot_id for machine in machines] == [f"{each:x}" for each in placement.machines]
    assert len({id(machine) for machine in machines}) == len(set(placement.machines))
    noticed = {machines[0].noticed_ms() for _ in range(200)}
    assert min(noticed) == 1 and max(noticed) == placement.noticed_max_ms


def test_a_watcher_is_mostly_quick_and_sometimes_late():
    placement = placement_of(0, 4)
    machine, *_ = placement.make_machines(random.Random(1), random.Random(2))
    delays_ms = [machine.watcher_ms() for _ in range(400)]
    late = [each for each in delays_ms if each > WATCHER_MS[1]]
    assert 0 < len(late) <= 400 * max(LATE_WATCHERS) * 1.2
    assert min(delays_ms) >= WATCHER_MS[0] and max(delays_ms) <= LATE_MS[1]
