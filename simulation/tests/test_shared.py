"""What a seed chooses for its whole run."""

from simulation.shared import profile_of

SEEDS = range(-200, 200)


def test_a_seed_has_one_profile_and_all_are_among_them():
    assert all(profile_of(seed) == profile_of(seed) for seed in SEEDS)
    found = [profile_of(seed) for seed in range(200)]
    assert {each.brokers for each in found} == {3, 4}
    assert {each.min_insync_replicas for each in found} == {1, 2}
    assert {each.network_delay_max_ms for each in found} == {1, 3, 10, 40}


def test_a_durable_seed_loses_power_and_one_alone_does_neither():
    assert all(profile_of(seed).power_fails for seed in SEEDS if profile_of(seed).durable)
    for seed in range(-200, 0):
        profile = profile_of(seed)
        assert (profile.brokers, profile.durable, profile.power_fails) == (4, False, False)
