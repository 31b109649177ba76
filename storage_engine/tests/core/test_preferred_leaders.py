"""Which replica is preferred as the leader, beside what `test_assignment` compares with the best
possible. Source: R-REP13."""

from collections import Counter

from storage_engine.core.assignment import all_at_once
from storage_engine.core.ids import BrokerId
from storage_engine.core.preferred_leaders import PreferredLeaders


def chosen(*replicas: tuple[int, ...], preferred=None) -> list[tuple[BrokerId, ...]]:
    counts = Counter({BrokerId(broker): n for broker, n in (preferred or {}).items()})
    leaders = PreferredLeaders(counts, lambda _broker, _change: 0, lambda _n, broker: broker)
    return all_at_once(leaders.choose([tuple(map(BrokerId, each)) for each in replicas]))


def test_the_replica_that_is_preferred_least_is_first():
    assert chosen((1, 2, 3), preferred={1: 2, 2: 0, 3: 1}) == [(2, 1, 3)]


def test_swaps_along_a_path_take_from_the_broker_with_the_most():
    """Broker 1 can give to 2 alone, and 2 to 3."""
    found = chosen((2, 3), (2, 3), (1, 2), (1, 2), (1,), preferred={3: 1})
    assert Counter(replicas[0] for replicas in found) == {1: 2, 2: 2, 3: 1}
    assert found[4] == (1,)


def test_what_no_swap_can_take_stays():
    assert chosen((1,), (1,), (2,)) == [(1,), (1,), (2,)]


def test_the_followers_of_a_leader_succeed_it_in_turn():
    found = chosen(*[(1, 2, 3)] * 4, preferred={2: 9, 3: 9})
    assert [replicas[:2] for replicas in found] == [(1, 2), (1, 3), (1, 2), (1, 3)]
