"""Elections as pure functions. Source: R-CTL2, R-CTL6, R-CTL7, R-CTL9, R-REP9."""

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.control.partition_elections import (
    Elected,
    controlled_shutdown_election,
    first_election,
    offline_election,
    preferred_election,
    shrink_to_live,
)

REPLICAS = (1, 2, 3)


def test_the_first_live_replica_leads_a_new_partition_and_all_live_ones_are_in_sync():
    assert first_election(REPLICAS, {2, 3}) == Elected(leader=2, isr=(2, 3))


def test_a_new_partition_waits_while_none_of_its_replicas_lives():
    assert first_election(REPLICAS, {7}) is None


def test_the_first_live_member_of_the_isr_in_assignment_order_takes_over():
    elected = offline_election(REPLICAS, (3, 2, 1), {2, 3}, unclean=False)
    assert elected == Elected(leader=2, isr=(2, 3))


def test_a_live_replica_outside_the_isr_does_not_lead():
    elected = offline_election(REPLICAS, (1,), {2, 3}, unclean=False)
    assert elected == Elected(leader=-1, isr=(1,))


def test_the_last_isr_is_kept_when_nobody_of_it_lives():
    assert offline_election(REPLICAS, (2, 1), set(), unclean=True).isr == (2, 1)


def test_an_unclean_leader_is_alone_in_sync():
    elected = offline_election(REPLICAS, (1,), {2, 3}, unclean=True)
    assert elected == Elected(leader=2, isr=(2,))


def test_a_live_member_of_the_isr_is_preferred_to_an_unclean_leader():
    elected = offline_election(REPLICAS, (3,), {1, 2, 3}, unclean=True)
    assert elected == Elected(leader=3, isr=(3,))


def test_dead_followers_leave_the_isr_and_the_leader_stays():
    assert shrink_to_live(1, (1, 2, 3), {1, 3}) == Elected(leader=1, isr=(1, 3))
    assert shrink_to_live(1, (1, 3), {1, 3}) is None


def test_a_leaving_leader_hands_over_and_leaves_the_isr():
    moved = controlled_shutdown_election(REPLICAS, 1, (1, 2, 3), {1, 2, 3}, 1)
    assert moved == Elected(leader=2, isr=(2, 3))


def test_a_leaving_follower_leaves_the_isr_only():
    moved = controlled_shutdown_election(REPLICAS, 1, (1, 2, 3), {1, 2, 3}, 3)
    assert moved == Elected(leader=1, isr=(1, 2))


def test_the_last_in_sync_replica_does_not_leave():
    assert controlled_shutdown_election(REPLICAS, 1, (1,), {1, 2, 3}, 1) is None
    assert controlled_shutdown_election(REPLICAS, 1, (1, 2), {1, 3}, 1) is None


def test_a_broker_outside_the_isr_has_nothing_to_hand_over():
    assert controlled_shutdown_election(REPLICAS, 1, (1, 2), {1, 2, 3}, 3) is None


def test_the_preferred_replica_leads_only_when_it_lives_and_is_in_sync():
    assert preferred_election(REPLICAS, 2, (1, 2), {1, 2}) == Elected(leader=1, isr=(1, 2))
    assert preferred_election(REPLICAS, 2, (2,), {1, 2}) is None
    assert preferred_election(REPLICAS, 2, (1, 2), {2}) is None
    assert preferred_election(REPLICAS, 1, (1, 2), {1, 2}) is None


BROKERS = st.sets(st.integers(1, 5))


@given(st.permutations((1, 2, 3, 4)), BROKERS, BROKERS, st.booleans())
def test_an_offline_election_keeps_its_invariants(assigned, isr, live, unclean):
    isr = tuple(sorted(isr & set(assigned))) or (assigned[0],)
    elected = offline_election(assigned, isr, live, unclean=unclean)
    assert elected.isr
    assert set(elected.isr) <= set(assigned)
    if elected.leader == -1:
        assert elected.isr == isr
        assert not live & set(isr)
    else:
        assert elected.leader in live
        assert elected.leader in elected.isr
    if not unclean:
        assert elected.leader == -1 or elected.leader in isr
        assert set(elected.isr) <= set(isr)


@given(st.permutations((1, 2, 3, 4)), BROKERS, BROKERS, st.integers(1, 4))
def test_a_controlled_shutdown_never_empties_the_isr(assigned, isr, live, leaving):
    isr = tuple(sorted(isr & set(assigned))) or (assigned[0],)
    moved = controlled_shutdown_election(assigned, isr[0], isr, live, leaving)
    if moved is not None:
        assert leaving not in moved.isr
        assert moved.leader in moved.isr
        assert set(moved.isr) < set(isr)
        assert moved.leader in live
